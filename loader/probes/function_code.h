// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loader/probes/control_flow.h"
#include "loader/probes/instruction.h"

namespace hostrange {

// An instruction at which a probe is placed.
struct ProbePlace {
    Instruction instruction;
    std::int32_t stack_growth =
        0;  // bytes by which the stack pointer has moved down since the place that was asked for
};

// What a place must fulfil.
struct PlaceRules {
    bool at_entry = false;          // the place asked for is a function's entry
    bool stack_must_stand = false;  // a uretprobe finds the return address where the stack pointer points to
    // Instructions that a probe from before may not slide to: inlined code begins or ends there.
    const std::set<std::uint64_t>* boundaries = nullptr;
};

// The cheapest instruction for a probe that is to stand at `address`: this one, or one that is always run next, before
// any branch and before any other code leads there. nullopt if none may bear a probe; `refusal` says why this one may
// not ("its first instruction … is …").
std::optional<ProbePlace> cheapest_place(const ControlFlow& flow, std::uint64_t address, const PlaceRules& rules,
                                         const KernelNops& kernel, std::string& refusal);

struct ExitInstruction {
    enum class Kind { kRet, kTailJump };
    Kind kind;
    Instruction instruction;
    std::uint64_t jump_target = 0;      // of a direct tail jump; 0 for an indirect one
    std::uint64_t got_address = 0;      // of an indirect one through the GOT: where the address of its target is stored
    std::optional<unsigned> condition;  // of a conditional one: as the instruction encodes it
};

struct FunctionCode {
    ProbePlace entry;
    ProbePlace unmoved_entry;             // the cheapest one before which the stack pointer does not move
    std::vector<ExitInstruction> exits;   // by address; every ret and every jump that leaves the parts
    bool entry_is_branch_target = false;  // some jump of the function goes back to its first instruction

    // Jumps that may end the function but are no exits, as nothing is known of where they lead.
    std::vector<Instruction> unresolved_jumps;
    std::vector<std::uint64_t> outside_targets;  // where direct jumps, conditional ones too, lead outside of the parts
    bool runs_past_end = false;  // the last instruction of a part does not end it: the code that follows goes on

    std::string problem;  // not empty: no probe may be placed, and why
};

// Finds entry and ends. `boundaries` as in PlaceRules.
FunctionCode read_function_code(const ControlFlow& flow, const KernelNops& kernel,
                                const std::set<std::uint64_t>& boundaries = {});

}  // namespace hostrange
