// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hostrange {

// What the probes of one scope cost, in whole nanoseconds.
struct ProbeCost {
    std::int64_t bias_ns = 0;  // part of it that lies in the scope itself: a leaf reads too long by so much
    std::int64_t full_ns = 0;  // all of it: every scope around it reads too long by so much
    bool operator==(const ProbeCost&) const = default;
};

}  // namespace hostrange
