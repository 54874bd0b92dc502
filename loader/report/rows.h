// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "loader/collect/statistics.h"

namespace hostrange {

// What the rows of a report tell apart.
enum class RowDetail {
    kUpstream,  // case, operator, backend, phase and range: processes and implementations are put together; once there
                // are cases, only what belongs to one
    kTable,     // cases are put together
    kAll,       // every row of the collector
};

// A row of a report: one row of the collector, or several put together. Refers to the collector's samples.
struct ReportRow {
    RowKey key;                  // process, implementation and case are empty where they are put together
    SampleView inclusive, self;  // corrected, if the collector corrects
    SampleView raw_inclusive, raw_self;
    std::uint64_t unwound = 0, calls = 0;
    std::uint64_t threads = 0;  // of all processes together
    // As in RowSamples.
    std::uint32_t depth = UINT32_MAX;
    std::uint32_t enclosing_range = RowSamples::kNoRange;
};

// What was taken out of the samples of one metric for the probes' sake, and what that makes of them.
struct Correction {
    double mean_ns = 0;           // of the probe cost in a scope
    double uncertainty_ns = 0;    // of the mean and of the median
    bool low_confidence = false;  // over kDearProbes times as much as what is left, by mean or median
};
inline constexpr double kDearProbes = 5;
Correction correction_of(const SampleView& raw, const SampleView& corrected, double uncertain_share);

// Of a case that has phases, what lies outside of them is left out. Ordered by case, process, operator, backend,
// implementation, phase (cold first), range in the order of the map. The rows stay valid until the collector is given
// another tree.
std::vector<ReportRow> report_rows(const Collector& collector, RowDetail detail);

}  // namespace hostrange
