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
    kEmulated,      // one-byte nop, push, call, jmp: emulated by the kernel
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
};

// A half-open range of addresses that belongs to a function: its body, or an out-of-line part (.cold).
struct CodePart {
    std::uint64_t address;
    std::uint64_t size;
};

struct FunctionCode {
    Instruction entry;
    std::vector<ExitInstruction> exits;  // by address; every ret and every jump that leaves the parts
    bool entry_is_branch_target = false; // some jump of the function goes back to its first instruction
    unsigned unresolved_jumps = 0;       // indirect jumps of which it is not known whether they leave the function
    std::string problem;                 // not empty: no probe may be placed, and why
};

// Decodes a function. parts[0] is its body and begins with its entry.
FunctionCode decode_function(const ElfFile& file, const std::vector<CodePart>& parts);

}  // namespace hostrange
