// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "loader/probes/elf_file.h"
#include "loader/probes/plan.h"

namespace hostrange {

// Places the ranges whose targets match `base_name` in the file, and adds what comes of it to the plan.
void plan_ranges(const ProbeMap& map, const std::string& base_name, const PlanSettings& settings, const ElfFile& file,
                 FilePlan& plan);

}  // namespace hostrange
