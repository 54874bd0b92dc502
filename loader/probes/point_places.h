// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "loader/probes/elf_file.h"
#include "loader/probes/function_parts.h"
#include "loader/probes/plan.h"
#include "loader/probes/probe_map.h"
#include "loader/probes/symbol_matching.h"

namespace hostrange {

// Points of point-to-point ranges that the map gives by their place in a file.
struct PointPlaces {
    const ProbeMap& map;
    const std::vector<std::uint32_t>& ranges;  // those of the file
    const ElfFile& file;
    const std::vector<FunctionGroup>& groups;
    FunctionReader& reader;
    const KernelNops& kernel;
    FilePlan& plan;

    // Adds their sites to the plan, or why there can be none.
    void add();

    // Takes the sites of ranges out of the plan that could only begin or only end: a beginning that nothing can end, or
    // an end of what nothing begins, would only cost. Returns the ranges, and whether they would begin here.
    // `anywhere`: of all targets of the map; the other point may be in a file that this one calls, or that calls this.
    std::map<std::uint32_t, bool> drop_lone(const SymbolMatcher& anywhere);

private:
    void add_place(std::uint32_t range, const Point& point, SiteKind kind);
    FunctionGroup group_around(std::uint64_t address) const;  // the function that an address lies in
};

}  // namespace hostrange
