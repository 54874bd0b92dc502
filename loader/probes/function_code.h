// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loader/probes/elf_file.h"

namespace hostrange {

// What the kernel does with the instruction under a probe; decides what a hit costs (docs/probe-sites.md).
enum class InstructionClass {
    kOptimisedNop,  // five-byte nop at a function's entry: patched into a call by kernels that do so
    kEmulated,      // one-byte nop, push, call, direct jump: emulated by the kernel
    kSingleStep,    // all others: executed out of line under single-step
};

struct Instruction {
    std::uint64_t address;
    std::string text;  // disassembly, Intel syntax
    InstructionClass instruction_class;
};

struct ExitInstruction {
    enum class Kind { kRet, kTailJump };
    Kind kind;
    Instruction instruction;
    std::uint64_t jump_target = 0;  // of a direct tail jump; 0 for an indirect one
    std::uint64_t got_address = 0;  // of an indirect one through the GOT: where the address of its target is stored
};

// A half-open range of addresses that belongs to a function: its body, or an out-of-line part (.cold).
struct CodePart {
    std::uint64_t address;
    std::uint64_t size;
    bool size_is_limit = false;  // the symbol has no size: the part ends where its code seems to, here at the latest
};

struct FunctionCode {
    Instruction entry;
    std::vector<ExitInstruction> exits;   // by address; every ret and every jump that leaves the parts
    bool entry_is_branch_target = false;  // some jump of the function goes back to its first instruction

    // Jumps that may end the function but are no exits: conditional ones that leave it when they are taken (a probe
    // there would fire also when they are not), and indirect ones of which nothing is known.
    std::vector<Instruction> unresolved_jumps;
    std::vector<std::uint64_t> outside_targets;  // where direct jumps, conditional ones too, lead outside of the parts
    bool runs_past_end = false;  // the last instruction of a part does not end it: the code that follows goes on

    std::string problem;  // not empty: no probe may be placed, and why
};

// Decodes a function. parts[0] is its body and begins with its entry. Tables of code addresses are recognised by the
// code that reads them, as gcc and clang write it; their targets are taken to be inside the function.
FunctionCode decode_function(const ElfFile& file, const std::vector<CodePart>& parts);

}  // namespace hostrange
