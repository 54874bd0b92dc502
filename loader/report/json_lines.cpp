// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "loader/report/report.h"
#include "loader/report/rows.h"

namespace hostrange {
namespace {

// As Python's repr() of a float: the shortest decimals that give the same double; an exponent from 1e16 on and below
// 1e-4. (The JSON library's own form switches to an exponent earlier and is not always the shortest.)
std::string python_float(double value) {
    if (!std::isfinite(value)) return "null";
    char buffer[64];
    const std::to_chars_result scientific =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    const std::string text(buffer, scientific.ptr);
    const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
    if (value != 0 && (exponent < -4 || exponent >= 16)) return text;
    const std::to_chars_result fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
    std::string plain(buffer, fixed.ptr);
    if (plain.find('.') == std::string::npos) plain += ".0";
    return plain;
}

std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void begin(std::string& line, std::string_view field) {
    line += line.empty() ? "{\"" : ",\"";
    line += field;
    line += "\":";
}

void add_text(std::string& line, std::string_view field, std::string_view value) {
    begin(line, field);
    line += quoted(value);
}

void add_integer(std::string& line, std::string_view field, std::uint64_t value) {
    begin(line, field);
    line += std::to_string(value);
}

void add_word(std::string& line, std::string_view field, std::string_view word) {
    begin(line, field);
    line += word;
}

void add_duration(std::string& line, std::string_view field, double value_ns, bool is_known) {
    begin(line, field);
    line += is_known ? python_float(value_ns) : "null";
}

void add_upstream_fields(std::string& line, const UpstreamRow& row) {
    add_text(line, "nodeid", row.nodeid);
    add_text(line, "operator", row.operator_name);
    add_text(line, "backend", row.backend);
    add_text(line, "phase", row.phase);
    add_text(line, "range", row.range);
    add_text(line, "metric", row.metric);
    add_integer(line, "count", row.count);
    add_text(line, "unit", "ns");
    add_duration(line, "mean", row.mean, row.count > 0);
    add_duration(line, "median", row.median, row.count > 0);
}

// Of one metric of a row.
struct MetricSamples {
    SampleView reported, raw;
};

void add_all_fields(std::string& line, const ReportRow& row, const MetricSamples& metric,
                    const SessionSummary& session) {
    const SampleView& samples = metric.reported;
    const auto process = session.processes.find(row.key.process);
    const bool is_known_process = process != session.processes.end();
    const auto lost = session.lost_by_range.find(row.key.range);
    const bool has_samples = samples.count() > 0;

    add_integer(line, "pid", row.key.process.process_id);
    add_integer(line, "process_start_ns", row.key.process.start_ns);
    add_text(line, "comm", is_known_process ? process->second.comm : "");
    add_text(line, "container", is_known_process ? process->second.container : "");
    add_text(line, "implementation", row.key.implementation);
    add_integer(line, "threads", row.threads);
    add_duration(line, "min", static_cast<double>(samples.minimum()), has_samples);
    add_duration(line, "max", static_cast<double>(samples.maximum()), has_samples);
    add_duration(line, "p90", samples.quantile(0.90), has_samples);
    add_duration(line, "p99", samples.quantile(0.99), has_samples);
    add_duration(line, "stddev", samples.standard_deviation(), has_samples);
    add_duration(line, "raw_mean", metric.raw.mean(), has_samples);
    add_duration(line, "raw_median", metric.raw.median(), has_samples);
    const bool is_corrected = session.uncertain_share.has_value() && has_samples;
    const Correction correction = correction_of(metric.raw, samples, session.uncertain_share.value_or(0));
    add_duration(line, "correction", correction.mean_ns, is_corrected);
    add_duration(line, "uncertainty", correction.uncertainty_ns, is_corrected);
    add_integer(line, "lost", lost == session.lost_by_range.end() ? 0 : lost->second);
    add_integer(line, "unwound", row.unwound);
    add_word(line, "exact_quantiles", samples.is_exact() ? "true" : "false");
    add_word(line, "exact_count", session.inexact_ranges.contains(row.key.range) ? "false" : "true");
    add_word(line, "low_confidence", !is_corrected ? "null" : correction.low_confidence ? "true" : "false");
}

}  // namespace

std::string upstream_json(const UpstreamRow& row) {
    std::string line;
    add_upstream_fields(line, row);
    line += '}';
    return line;
}

namespace {

// The one value that the rows of a case have; empty if there is none or more than one.
std::string only_value(std::span<const ReportRow> rows, std::string RowKey::*field) {
    std::string value;
    for (const ReportRow& row : rows) {
        if ((row.key.*field).empty() || row.key.*field == value) continue;
        if (!value.empty()) return "";
        value = row.key.*field;
    }
    return value;
}

void add_measurements(std::string& lines, const Collector& collector, const MarkedCase& marked,
                      std::span<const ReportRow> rows, const SessionSummary& session, bool all) {
    for (const Measurement& measurement : marked.measurements) {
        UpstreamRow upstream{.nodeid = marked.nodeid,
                             .operator_name = marked.operator_name,
                             .backend = marked.backend,
                             .phase = collector.marks().phase_name(measurement.phase),
                             .range = measurement.name,
                             .metric = "inclusive",
                             .count = measurement.count,
                             .mean = measurement.mean_ns,
                             .median = measurement.median_ns};
        if (upstream.operator_name.empty()) upstream.operator_name = only_value(rows, &RowKey::operator_name);
        if (upstream.backend.empty()) upstream.backend = only_value(rows, &RowKey::backend);
        std::string line;
        add_upstream_fields(line, upstream);
        if (all) {
            ReportRow row;
            row.key.process = measurement.process;
            row.key.range = RowSamples::kNoRange;
            add_all_fields(line, row, {row.inclusive, row.raw_inclusive}, session);
        }
        lines += line;
        lines += "}\n";
    }
}

}  // namespace

std::string json_lines(const Collector& collector, const SessionSummary& session, Fields fields) {
    const bool all = fields == Fields::kAll;
    const MarkLog& marks = collector.marks();
    const std::vector<ReportRow> rows = report_rows(collector, all ? RowDetail::kAll : RowDetail::kUpstream);
    std::string lines;
    auto row = rows.begin();
    for (std::uint32_t number = 0; number < marks.cases().size(); ++number) {
        const MarkedCase& marked = marks.cases()[number];
        const auto first = row;
        for (; row != rows.end() && row->key.test_case == number; ++row) {
            if (!all && row->inclusive.count() == 0) continue;
            for (const bool is_self : {false, true}) {
                const SampleView& samples = is_self ? row->self : row->inclusive;
                const UpstreamRow upstream{.nodeid = marked.nodeid,
                                           .operator_name = row->key.operator_name,
                                           .backend = row->key.backend,
                                           .phase = marks.phase_name(row->key.phase),
                                           .range = collector.ranges()[row->key.range].name,
                                           .metric = is_self ? "self" : "inclusive",
                                           .count = samples.count(),
                                           .mean = samples.mean(),
                                           .median = samples.median()};
                std::string line;
                add_upstream_fields(line, upstream);
                if (all) add_all_fields(line, *row, {samples, is_self ? row->raw_self : row->raw_inclusive}, session);
                lines += line;
                lines += "}\n";
            }
        }
        add_measurements(lines, collector, marked, {first, row}, session, all);
    }
    return lines;
}

}  // namespace hostrange
