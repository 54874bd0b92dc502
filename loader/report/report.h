// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "loader/collect/statistics.h"

namespace hostrange {

// What the report says of a process.
struct ProcessLine {
    ProcessKey key;
    std::string comm;
    std::string container;  // id from its cgroup; empty outside containers
};

// Everything that a report is made of, besides the samples.
struct SessionSummary {
    std::map<ProcessKey, ProcessLine> processes;
    std::map<std::uint32_t, std::uint64_t> lost_by_range;     // scopes, by range number
    std::vector<std::string> warnings;  // one line each, shown after the table and kept in the sidecar
    nlohmann::ordered_json meta;        // the sidecar, but for what the report adds itself (totals, lost)
    double duration_s = 0;
};

enum class Fields { kUpstream, kAll };

// One row for people or a reader: sample sets of one key, one metric. Rows are ordered by process, operator, backend,
// implementation, phase (cold first), range in the order of the map, metric (inclusive first).
//
// JSON lines. kUpstream: exactly nodeid, operator, backend, phase, range, metric, count, unit, mean, median, compact
// separators; processes and implementations are merged. kAll: the ten, then pid, process_start_ns, comm, container,
// implementation, threads, min, max, p90, p99, stddev, raw_mean, raw_median, correction, lost, unwound, exact_quantiles,
// low_confidence; one row per process.
std::string json_lines(const Collector& collector, const SessionSummary& session, Fields fields);

// Columns of the terminal on stdout; 0 if it is none.
unsigned terminal_width();

// The table for a terminal. Durations in ns with thousands separators; width in columns (0: not limited).
std::string table(const Collector& collector, const SessionSummary& session, unsigned width);

// Writes text to path so that a reader sees the old file or the whole new one (temporary file in the same folder, fsync,
// rename). The file belongs to `owner` (uid, gid) if that is not -1. Throws Failure(kOutput).
void write_atomically(const std::string& path, const std::string& text, int owner_user = -1, int owner_group = -1);

// Fails early, before anything is attached: Failure(kOutput) if path could not be written, with the reason.
void check_writable(const std::string& path);

}  // namespace hostrange
