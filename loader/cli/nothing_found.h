// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "loader/failure.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"

namespace hostrange {

// Why there is nothing to probe: which files were looked for in whom (e.g. "process 12 (python3)"), what is mapped
// instead, or what is wrong with the files that are mapped.
Failure nothing_found(const ProbeMap& map, const std::string& whom, const std::vector<const FilePlan*>& plans,
                      const std::set<std::string>& other_files);

}  // namespace hostrange
