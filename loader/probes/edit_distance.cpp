// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/edit_distance.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace hostrange {

std::size_t edit_distance(std::string_view one, std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < other.size(); ++j) {
            const std::size_t best = std::min({row[j + 1] + 1, row[j] + 1, diagonal + (one[i] == other[j] ? 0 : 1)});
            diagonal = std::exchange(row[j + 1], best);
        }
    }
    return row.back();
}

}  // namespace hostrange
