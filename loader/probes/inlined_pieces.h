// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "loader/probes/debug_info.h"
#include "loader/probes/flow_graph.h"
#include "loader/probes/function_parts.h"

namespace hostrange {

// Code of an inlined call that hangs together.
struct InlinedPiece {
    std::set<std::uint64_t> code;        // addresses of its instructions
    std::vector<std::uint64_t> entries;  // those that other code leads to, sorted
    // Those where the first statement begins and no loop of the piece returns to.
    std::vector<std::uint64_t> beginnings;
    bool is_straight = true;  // neither calls nor jumps: it may have been moved here out of the call

    bool contains(std::uint64_t address) const { return code.contains(address); }
};

// A place where calls begin.
struct InlinedBeginning {
    std::uint64_t address;
    bool ends_another = false;  // the code before it belongs to another call, which ends here
    bool repeats = false;       // loops of the call itself come by here too
};

struct InlinedBeginnings {
    std::vector<InlinedBeginning> places;
    std::vector<InlinedPiece> pieces;  // those that they lie in
    std::string doubt;                 // not empty: calls may be missed or counted twice, and why
    std::string problem;               // not empty: none was found, and why
};

// Optimisers copy inlined code (they unroll the loop around it), move parts of it away, and thread jumps past its
// beginning, but debug information describes all that as one call. This finds where calls begin in it.
//
// What debug information says to be the call's code is taken apart into pieces; short straight gaps are bridged. A
// piece in which the first statement begins is a copy of the call. Where the statement's place is not known, the call
// begins where debug information says.
//
// `all_beginnings`: of this and other calls in the function.
InlinedBeginnings find_inlined_beginnings(const WholeFunction& function, const FlowGraph& graph,
                                          const InlinedInstance& instance,
                                          const std::set<std::uint64_t>& all_beginnings);

}  // namespace hostrange
