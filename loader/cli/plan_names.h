// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "loader/probes/plan.h"

namespace hostrange {

// What parts of a plan are called in sidecars and listings.
const char* site_kind_name(SiteKind kind);
const char* instruction_class_name(InstructionClass instruction_class);
// Why a site stands where it does, in one word.
const char* why_there(const Site& site, const PlannedFunction& function);
const char* placement_name(PlannedFunction::Kind kind);
nlohmann::ordered_json inlined_json(const ProbeMap& map, const FilePlan& plan);

}  // namespace hostrange
