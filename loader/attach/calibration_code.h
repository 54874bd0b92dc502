// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace hostrange {

// A row of the table in calibration_code.S. Addresses.
struct CalibrationCase {
    std::uint64_t entry, end;              // EntryWay and EndWay
    std::uint64_t leaf, leaf_end;          // of markers: the functions range_begin and range_end
    std::uint64_t callee, callee_end;      // what the leaf jumps to, if it ends by a jump
    std::uint64_t outer, outer_end, twin;  // twin: the outer function of the copy that is not probed
};

extern "C" {
extern const CalibrationCase hostrange_calibration_cases[];
extern const CalibrationCase hostrange_calibration_cases_end[];
extern const char hostrange_calibration_name[];
}

inline std::span<const CalibrationCase> calibration_cases() {
    return {hostrange_calibration_cases, hostrange_calibration_cases_end};
}

}  // namespace hostrange
