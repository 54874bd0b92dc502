// SPDX-License-Identifier: Apache-2.0
#include "loader/report/rows.h"

#include <cmath>
#include <map>
#include <utility>

namespace hostrange {
namespace {

void add(ReportRow& row, const RowSamples& samples, bool corrects) {
    row.inclusive.add(corrects ? samples.corrected_inclusive : samples.inclusive);
    row.self.add(corrects ? samples.corrected_self : samples.self);
    row.raw_inclusive.add(samples.inclusive);
    row.raw_self.add(samples.self);
    row.unwound += samples.unwound;
    row.calls += samples.calls;
    if (samples.depth < row.depth) {
        row.depth = samples.depth;
        row.enclosing_range = samples.enclosing_range;
    }
}

}  // namespace

Correction correction_of(const SampleView& raw, const SampleView& corrected, double uncertain_share) {
    const auto is_dear = [](double cost_ns, double left_ns) { return cost_ns > kDearProbes * left_ns; };
    Correction correction;
    correction.mean_ns = raw.mean() - corrected.mean();
    correction.uncertainty_ns = uncertain_share * std::abs(correction.mean_ns);
    correction.low_confidence = raw.count() > 0 && (is_dear(correction.mean_ns, corrected.mean()) ||
                                                    is_dear(raw.median() - corrected.median(), corrected.median()));
    return correction;
}

std::vector<ReportRow> report_rows(const Collector& collector, RowDetail detail) {
    std::map<RowKey, ReportRow> merged;
    // Threads are numbered within their process, so only sets of one process can be united.
    std::map<RowKey, std::map<ProcessKey, ThreadSet>> threads;
    const MarkLog& marks = collector.marks();
    for (const auto& [key, samples] : collector.rows()) {
        const bool in_case = key.test_case != MarkLog::kNoCase;
        if (in_case && key.outside_phases && marks.cases()[key.test_case].has_phases) continue;
        RowKey merged_key = key;
        merged_key.outside_phases = false;
        if (detail == RowDetail::kUpstream) {
            if (!in_case && marks.has_cases()) continue;
            merged_key.process = {};
            merged_key.implementation.clear();
        }
        if (detail == RowDetail::kTable) merged_key.test_case = MarkLog::kNoCase;
        ReportRow& row = merged[merged_key];
        row.key = merged_key;
        add(row, *samples, collector.corrects());
        threads[merged_key][key.process].insert_all(samples->threads);
    }
    std::vector<ReportRow> rows;
    rows.reserve(merged.size());
    for (auto& [key, row] : merged) {
        for (const auto& [process, set] : threads[key]) row.threads += set.size();
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace hostrange
