// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "loader/attach/calibration.h"
#include "loader/collect/probe_cost.h"

namespace hostrange {

// {"seconds": ..., "lost_scopes": ..., "pairs": [{"entry": ..., "end": ..., "bias_ns": ..., ...}]}
nlohmann::ordered_json calibration_json(const Calibration& calibration);
// nullopt if it is not what calibration_json() makes.
std::optional<Calibration> parse_calibration(const nlohmann::ordered_json& json);

// The calibration that was kept, if it is not older than kFreshSeconds and was made by this very program on this
// kernel, boot, CPU and in this mode; else a new one, which is kept. Throws Failure.
inline constexpr long kFreshSeconds = 600;
struct StoredCalibration {
    Calibration calibration;
    long age_s = 0;  // 0: made now
};
StoredCalibration stored_or_new_calibration(AttachMode mode);
// The one that was kept, in either mode. Needs no rights.
std::optional<StoredCalibration> kept_calibration();

// What the probes of such a scope cost. Nothing is known of pairs that were not measured and have no near one.
ProbeCost probe_cost(const Calibration& calibration, const ScopeProbes& probes);

// Two calibrations that agree, put together: machines have slow phases, and one that was measured in one holds for no
// other. Throws Failure.
Calibration agreed_calibration(AttachMode mode);

// By how much what probes cost now differs from a calibration. Measured a few times, until it agrees: then a slow phase
// was in between. Throws Failure.
double drift_since(const Calibration& earlier, AttachMode mode);

// By how much the full costs of two calibrations differ: the median over pairs of |later / earlier - 1|.
double drift(const Calibration& earlier, const Calibration& later);

}  // namespace hostrange
