// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>

#include "loader/attach/kernel_features.h"
#include "loader/attach/probe_pairs.h"

namespace hostrange {

// What the probes of one scope cost, in ns: medians over rounds, and how far rounds differ (half the distance between
// the quartiles).
struct PairCost {
    double bias_ns = 0, bias_spread_ns = 0;  // part that lies in the scope itself
    double full_ns = 0, full_spread_ns = 0;  // all of it
};

struct Calibration {
    std::map<ProbePair, PairCost> pairs;
    double seconds = 0;  // it took so long
    std::uint64_t lost_scopes = 0;

    // Of a pair that was not measured, the nearest one that was: the same entry with a ret, or with steps at both ends.
    const PairCost* cost(ProbePair pair) const;
};

struct CalibrationSettings {
    AttachMode mode = AttachMode::kAuto;
    unsigned rounds = 30;
};

// Measures, with the programs that a profile uses, in a child process that calls functions whose probes are of each
// pair (calibration_code.S). In each round a pair's outer function calls its leaf kFewLeaves and kManyLeaves times; the
// difference of the outer scope's raw times, less what the leaf takes in a copy without probes, is the full cost; the
// raw time of a leaf's scope, less the same, is the bias. So neither the outer scope's own cost nor that of the record
// is in it. Throws Failure.
Calibration calibrate(const CalibrationSettings& settings);

}  // namespace hostrange
