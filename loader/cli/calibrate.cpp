// SPDX-License-Identifier: Apache-2.0
// hostrange-bpf calibrate: what probes cost on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "loader/attach/calibration.h"
#include "loader/cli/calibration_store.h"
#include "loader/cli/options.h"
#include "loader/failure.h"

namespace hostrange {

int show_calibration(const ProfileOptions& options, bool json) {
    check_kernel_usable();
    const Calibration calibration = agreed_calibration(options.attach);
    if (json) {
        fmt::print("{}\n", calibration_json(calibration).dump(2));
        return static_cast<int>(ExitCode::kSuccess);
    }
    fmt::print("{:<18} {:<18} {:>9} {:>7} {:>9} {:>7}\n", "entry", "end", "bias", "+-", "full cost", "+-");
    for (const auto& [pair, cost] : calibration.pairs) {
        fmt::print("{:<18} {:<18} {:>9.0f} {:>7.0f} {:>9.0f} {:>7.0f}\n", entry_way_name(pair.entry),
                   end_way_name(pair.end), cost.bias_ns, cost.bias_spread_ns, cost.full_ns, cost.full_spread_ns);
    }
    fmt::print("ns per scope; medians, and half the distance between the quartiles; {:.1f} s\n", calibration.seconds);
    return static_cast<int>(ExitCode::kSuccess);
}

}  // namespace hostrange
