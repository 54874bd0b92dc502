// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace hostrange {

// How many letters must be put in, taken out or replaced to make one text the other (Levenshtein distance): for
// "did you mean" and "nearest names".
std::size_t edit_distance(std::string_view one, std::string_view other);

}  // namespace hostrange
