// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hostrange {

// The debug file of a build-id, from the debuginfod servers that the user has named in DEBUGINFOD_URLS or from what was
// fetched from them before; see debuginfod(8). Empty if no server is named or none has it,
// or libdebuginfod is not installed. It may take long.
std::string fetch_debug_file(const std::string& build_id);

}  // namespace hostrange
