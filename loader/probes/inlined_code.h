// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "loader/probes/debug_info.h"
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

// One inlined call: where it is entered and left.
struct InlinedCode {
    InnerPlace entry;
    std::vector<InlinedExit> exits;
    std::string note;
    std::string problem;  // not empty: it cannot be placed, and why
};

// `ranges`: the addresses that debug information gives to the inlined call, `entry` the first that runs. Optimisers
// move instructions about, so the ranges are taken as a hint: from the entry the code is followed as long as it stays
// in them, short straight gaps included, and every way out of it gets an exit.
// `boundaries`: see PlaceRules; those of all inlined code of the function.
InlinedCode read_inlined_code(const WholeFunction& function, const FrameTable& frames,
                              const std::vector<AddressRange>& ranges, std::uint64_t entry,
                              const std::set<std::uint64_t>& boundaries, const KernelNops& kernel);

}  // namespace hostrange
