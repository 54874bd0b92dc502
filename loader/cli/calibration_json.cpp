// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/calibration_json.h"

namespace hostrange {

nlohmann::ordered_json calibration_json(const Calibration& calibration) {
    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    for (const auto& [pair, cost] : calibration.pairs) {
        pairs.push_back({{"entry", entry_way_name(pair.entry)},
                         {"end", end_way_name(pair.end)},
                         {"bias_ns", cost.bias_ns},
                         {"bias_spread_ns", cost.bias_spread_ns},
                         {"full_ns", cost.full_ns},
                         {"full_spread_ns", cost.full_spread_ns}});
    }
    return {{"seconds", calibration.seconds}, {"lost_scopes", calibration.lost_scopes}, {"pairs", std::move(pairs)}};
}

}  // namespace hostrange
