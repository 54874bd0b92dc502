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

// A probe inside of a function, and how the stack pointer at the function's entry is found there.
struct InnerPlace {
    Instruction instruction;
    bool from_frame_pointer = false;
    std::int32_t stack_adjust = 0;  // that register + adjustment = stack pointer at the function's entry
};

struct InlinedExit {
    enum class Kind {
        kAfter,     // what runs after the inlined code; other code may lead there too
        kRet,       // the function returns out of the inlined code
        kTailJump,  // it leaves by a jump
        kLanding,   // an exception has left the inlined code and lands here
    };
    Kind kind;
    InnerPlace place;
    ExitInstruction jump = {};  // of kTailJump
    bool is_shared = false;     // of kAfter: other code leads there too
};

struct InlinedEntry {
    InnerPlace place;
    bool ends_another = false;  // another call of the same function may end there
    bool repeats = false;       // loops of the call itself come by here too
};

// One inlined call: where it is entered and left.
struct InlinedCode {
    std::vector<InlinedEntry> entries;  // several if the optimiser has made copies
    std::vector<InlinedExit> exits;
    std::string doubt;    // not empty: calls may be missed or counted twice, and why
    std::string problem;  // not empty: it cannot be placed, and why
};

// Optimisers move instructions about, so what debug information says is taken as a hint; see find_inlined_beginnings().
// Every way out of the code gets an exit. `marks`: those of all inlined code of the function.
InlinedCode read_inlined_code(const WholeFunction& function, const FlowGraph& graph, const FrameTable& frames,
                              const InlinedInstance& instance, const InlinedMarks& marks, const KernelNops& kernel);

}  // namespace hostrange
