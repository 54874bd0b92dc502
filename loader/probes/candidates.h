// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "loader/probes/elf_file.h"
#include "loader/probes/probe_map.h"

namespace hostrange {

// For a range of which nothing matches: the demangled names of the file's functions that share most with its patterns,
// best first, at most three. Patterns are compared by the identifiers in them.
std::vector<std::string> nearest_functions(const RangeDefinition& range, const ElfFile& file);

}  // namespace hostrange
