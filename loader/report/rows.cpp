// SPDX-License-Identifier: Apache-2.0
#include "loader/report/rows.h"

#include <map>
#include <utility>

namespace hostrange {
namespace {

void add(ReportRow& row, const RowSamples& samples) {
    row.inclusive.add(samples.inclusive);
    row.self.add(samples.self);
    row.unwound += samples.unwound;
    row.calls += samples.calls;
    if (samples.depth < row.depth) {
        row.depth = samples.depth;
        row.enclosing_range = samples.enclosing_range;
    }
}

}  // namespace

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
        add(row, *samples);
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
