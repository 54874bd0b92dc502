// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hostrange {

struct DebugFileSearch {
    std::vector<std::string> directories;
    std::string root;
};

}  // namespace hostrange
