// SPDX-License-Identifier: Apache-2.0
// The builds of tests/targets/matrix.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace hostrange::test {

inline std::vector<std::string> matrix_builds() {
    std::vector<std::string> names;
    std::istringstream list(HOSTRANGE_MATRIX);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    return names;
}

inline std::string matrix_program(const std::string& build) {
    return std::string(HOSTRANGE_MATRIX_DIR) + "/matrix_" + build;
}

inline std::string matrix_map() {
    return HOSTRANGE_SOURCE_DIR "/tests/targets/matrix/matrix.toml";
}

}  // namespace hostrange::test
