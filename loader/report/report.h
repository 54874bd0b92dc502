// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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
    std::map<std::uint32_t, std::uint64_t> lost_by_range;  // scopes, by range number
    std::set<std::uint32_t> inexact_ranges;                // range numbers: rows may miss scopes, or have some twice
    std::vector<std::string> warnings;  // one line each, shown after the table and kept in the sidecar
    nlohmann::ordered_json meta;        // the sidecar, but for what the report adds itself (totals, lost)
    double duration_s = 0;
    bool nothing_probed = false;
    // Of the probe cost that was taken out of a figure: how much of it may be wrong. None: times are raw.
    std::optional<double> uncertain_share;
};

enum class Fields { kUpstream, kAll };

// The upstream profiler's ten fields, but for the unit, which is always ns.
struct UpstreamRow {
    std::string nodeid;  // of the case, as a pytest test; empty: none
    std::string operator_name, backend;
    std::string_view phase;  // "cold", "warm"
    std::string range;
    std::string_view metric;  // "inclusive", "self"
    std::uint64_t count = 0;
    double mean = 0, median = 0;  // ns; null if count is 0
};

// One JSON object without a newline, byte for byte as Python's json.dumps(..., separators=(",", ":")) writes it: ASCII,
// durations as the shortest decimals that give the same double, always with a fraction or an exponent.
std::string upstream_json(const UpstreamRow& row);

// JSON lines. Rows are ordered by case, process, operator, backend, implementation, phase (cold first), range in the
// order of the map, metric (inclusive first). Bytes that are no UTF-8 become U+FFFD. kUpstream: exactly nodeid,
// operator, backend, phase, range, metric, count, unit, mean, median, compact separators; processes and implementations
// are merged; rows without a sample are left out, and what belongs to no case once there are cases. Durations that the
// target has measured itself stand behind the rows of their case. kAll: the ten, then pid, process_start_ns, comm,
// container, implementation, threads, min, max, p90, p99, stddev, raw_mean, raw_median, correction, uncertainty, lost,
// unwound, exact_quantiles, exact_count, low_confidence; one row per process and implementation. Without a sample
// (unwound scopes only) the durations are null; so are correction, uncertainty and low_confidence of raw times.
std::string json_lines(const Collector& collector, const SessionSummary& session, Fields fields);

// Columns of the terminal on stdout; 0 if it is none.
unsigned terminal_width();

// Whether the environment (LC_ALL, LC_CTYPE, LANG) says that text is UTF-8.
bool locale_is_utf8();

// The table for a terminal: one block per process, operator, backend and implementation, the dearest first. Durations
// in ns with thousands separators; width in columns (0: not limited): what does not fit is left out, bars first, then
// self mean, then inclusive mean. Plain ASCII but for the texts of `session` unless utf8.
std::string table(const Collector& collector, const SessionSummary& session, unsigned width,
                  bool utf8 = locale_is_utf8());

// Writes text to path so that a reader sees the old file or the whole new one (temporary file in the same folder,
// fsync, rename). A symbolic link stays and its target is replaced; a file keeps its mode and owner, a new one has mode
// 0644 less the umask. Devices, pipes and /dev/stdout are written to directly. The file belongs to `owner` (uid, gid)
// where that is not -1. Throws Failure(kOutput).
void write_atomically(const std::string& path, const std::string& text, int owner_user = -1, int owner_group = -1);

// Fails early, before anything is attached: Failure(kOutput) if path could not be written, with the reason. Leaves an
// existing file as it is and no new one behind.
void check_writable(const std::string& path);

}  // namespace hostrange
