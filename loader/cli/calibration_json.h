// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "loader/attach/calibration.h"

namespace hostrange {

// {"seconds": ..., "pairs": [{"entry": ..., "end": ..., "bias_ns": ..., ...}]}
nlohmann::ordered_json calibration_json(const Calibration& calibration);

}  // namespace hostrange
