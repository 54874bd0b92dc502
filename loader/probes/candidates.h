// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "loader/probes/elf_file.h"
#include "loader/probes/probe_map.h"

namespace hostrange {

// For ranges of which nothing matches: for each of them the demangled names of the file's functions that share most
// with its patterns, best first, at most three. Patterns are compared by the identifiers in them.
std::vector<std::vector<std::string>> nearest_functions(const std::vector<const RangeDefinition*>& ranges,
                                                        const ElfFile& file);

}  // namespace hostrange
