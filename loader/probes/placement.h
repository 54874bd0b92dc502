// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "loader/probes/function_parts.h"
#include "loader/probes/inlined_code.h"
#include "loader/probes/plan.h"
#include "loader/probes/symbol_matching.h"

namespace hostrange {

// Code that matches some range: a function, or an inlined call of one, on its way into the plan.
struct Placement {
    FunctionGroup group;                   // the function; of inlined code, the one that it lies in
    const WholeFunction* whole = nullptr;  // its code
    std::vector<SymbolMatch> matches;      // what it is to which ranges; at most one is a Role::kScope
    std::string symbol, name;
    std::vector<std::string> other_symbols;
    std::string note;
    bool uretprobe = false;
    std::string ends;  // why its ends are seen in this way

    std::optional<InlinedInstance> instance;  // of inlined code
    InlinedCode inlined;
    unsigned level = 0;  // see Site::level

    const SymbolMatch* scope() const;  // nullptr: it only serves as a point
};

void add_note(std::string& notes, const std::string& note);

// Where a tail jump leads to.
struct Callee {
    std::string name;
    bool probed = false;                   // it carries a scope, whose end is seen
    const FunctionGroup* group = nullptr;  // of a function in this file that is not probed
};

// What placing sites asks of the whole file.
struct Surroundings {
    const ElfFile& file;
    FunctionReader& reader;
    std::function<Callee(const ExitInstruction&)> callee_of;
    std::function<bool(std::uint32_t range)> follows_tail_calls;
    std::set<std::tuple<std::uint64_t, SiteKind, std::uint32_t, bool, unsigned>> taken = {};  // by add_sites()
};

// Adds the placement's functions and sites to the plan.
void add_sites(const Placement& placement, Surroundings& surroundings, FilePlan& plan);

}  // namespace hostrange
