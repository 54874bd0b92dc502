// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bpf/hostrange.h"

namespace hostrange {

// A range of the map of which nothing can be seen.
struct MissingRange {
    std::string name, reason;
};

// What was counted until the probes were gone, by the kernel and by the collector.
struct ProfileCounts {
    struct Count {
        hostrange_site_counters counters;
        std::uint64_t open;  // scopes that had not ended
    };
    std::vector<Count> sites;  // as the session numbers them
    hostrange_session_counters session{};

    // Sums over all sites.
    hostrange_site_counters total{};
    std::uint64_t open = 0;
    std::uint64_t unbalanced = 0;  // sites at which what began is not what ended, one way or another, or is open

    // Scopes by range; ranges with none are left out.
    std::map<std::uint32_t, std::uint64_t> lost, doubtful, uncertain_conditions;
    std::map<std::uint32_t, std::uint64_t> may_have_returned;  // they looked dead, and exits found no scope
    std::map<std::uint32_t, std::uint64_t> unreturned;  // ended by no return, though uretprobes see the function's
    // Inlined calls by range: those that are not placed, and all.
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> unplaced;
    std::set<std::uint32_t> uncertain_nesting;  // ranges with a condition, where fibers make nesting uncertain
    std::set<std::uint32_t> inexact;            // ranges: because of any of these, of overflow, or an overwritten file

    std::vector<MissingRange> missing;

    // Marked cases that ran more than once; scopes in no case; scopes of cases with phases that are in none of these.
    std::uint64_t cases_run_again = 0, outside_cases = 0, outside_phases = 0;
};

}  // namespace hostrange
