// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/hostrange.h"
#include "loader/probes/plan.h"

namespace hostrange {

// Which program serves a probe, and how it is attached.
enum class Room { kEntry, kExit, kSteps, kReturn, kReturnSteps, kCatch };

// One probe: all sites of a plan that stand at one place and fire at one time.
struct Probe {
    std::uint64_t file_offset;
    Room room;
    std::uint64_t cookie;                  // with steps: the number of their list, which whoever loads it gives
    std::vector<hostrange_step> steps;     // of kSteps and kReturnSteps: what happens there, in order
    std::vector<std::uint32_t> functions;  // indices into FilePlan::functions
};

// `numbers`: of the plan's sites, by index into plan.sites; they go into the cookies.
std::vector<Probe> probes_of_plan(const FilePlan& plan, const std::vector<std::uint32_t>& numbers);

}  // namespace hostrange
