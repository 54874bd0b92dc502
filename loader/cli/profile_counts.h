// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
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
    std::map<std::uint32_t, std::uint64_t> doubtful, unwound, orphans, lost;
    std::map<std::uint32_t, std::uint64_t> unreturned;  // ended by no return, though uretprobes see the function's
    std::set<std::uint32_t> entered, inexact;

    std::vector<MissingRange> missing;

    // Marked cases that ran more than once; scopes in no case; scopes of cases with phases that are in none of these.
    std::uint64_t cases_run_again = 0, outside_cases = 0, outside_phases = 0;
};

}  // namespace hostrange
