// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/container.h"

#include <fmt/format.h>

#include <cctype>
#include <fstream>

namespace hostrange {

std::string container_of_process(pid_t process) {
    constexpr std::size_t kIdDigits = 64, kShownDigits = 12;
    std::ifstream file(fmt::format("/proc/{}/cgroup", process));
    std::string line;
    while (std::getline(file, line)) {
        std::size_t digits = 0;
        for (std::size_t i = 0; i <= line.size(); ++i) {
            if (i < line.size() && std::isxdigit(static_cast<unsigned char>(line[i]))) {
                ++digits;
                continue;
            }
            if (digits == kIdDigits) return line.substr(i - kIdDigits, kShownDigits);
            digits = 0;
        }
    }
    return "";
}

}  // namespace hostrange
