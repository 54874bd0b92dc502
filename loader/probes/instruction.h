// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Zydis/Zydis.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace hostrange {

// What the kernel does with the instruction under a probe; decides what a hit costs (docs/probe-sites.md).
enum class InstructionClass {
    kOptimisedNop,  // five-byte nop at a function's entry: patched into a call by kernels that do so
    kEmulated,      // nop, push, call, jump: emulated by the kernel
    kSingleStep,    // all others: executed out of line under single-step
};

// What differs between kernels.
struct KernelNops {
    bool optimises_nop5 = false;   // 6.18: patches 0f 1f 44 00 00 into a call
    bool optimises_nop10 = false;  // later: patches 66 2e 0f 1f 84 00 00 00 00 00 instead
    bool emulates_all = false;     // 6.17: emulates nops of every length, not that of one byte only
};

// Asks the running kernel, by a system call (its number is that of uprobe(2), which only the kernel's own trampoline
// may use): ENXIO from kernels that optimise the five-byte nop, EPROTO from those that optimise one of ten bytes
// instead, ENOSYS from older ones. Needs no privileges.
KernelNops running_kernel_nops();

struct Instruction {
    std::uint64_t address = 0;
    std::string text;  // disassembly, Intel syntax
    InstructionClass instruction_class = InstructionClass::kSingleStep;
};

// One decoded x86-64 instruction and what the Linux kernel does with a probe on it (arch/x86/kernel/uprobes.c).
class DecodedInstruction {
public:
    // The instruction at the beginning of `bytes`; nullopt if there is none.
    static std::optional<DecodedInstruction> decode(std::span<const std::uint8_t> bytes, std::uint64_t address);

    std::uint64_t address() const { return address_; }
    unsigned size() const { return raw_.length; }

    bool is_ret() const;
    bool is_call() const;  // direct or indirect
    bool is_direct_jump() const;
    bool is_conditional_jump() const;  // also loop, jrcxz, xbegin
    bool is_indirect_jump() const;
    bool is_padding() const;  // nop or int3
    bool ends_flow() const;   // ret, jump, or a trap: what follows is not reached from here

    std::uint64_t branch_target() const;  // of a direct or conditional jump
    // Of a conditional jump that looks at the flags: its condition as the instruction encodes it, 0 (overflow) to 15.
    std::optional<unsigned> condition() const;

    // By how many bytes it moves the stack pointer down; nullopt if that cannot be known from it alone.
    std::optional<std::int32_t> stack_growth() const;

    // Of an indirect jump.
    bool is_notrack() const;
    std::optional<std::uint64_t> memory_rip_target() const;  // [rip + n]: the address that is read
    bool has_memory_operand() const;
    unsigned memory_index_scale() const;               // 0 without an index register
    std::optional<unsigned> register_operand() const;  // number of the register, if the operand is one

    // Steps of the code that reads an entry of a jump table.
    bool loads_from_table() const;                    // mov or movsxd from memory with an index register
    std::optional<unsigned> loaded_register() const;  // the target of a 64-bit mov from memory with an index of scale 8
    std::optional<unsigned> added_register() const;   // the register changed by a 64-bit add

    // `is_entry`: the stack below it is not in use yet, so that the kernel's patch may write there.
    InstructionClass instruction_class(bool is_entry, const KernelNops& kernel) const;
    std::string refusal() const;  // "is a … : why no probe may stand here"; empty if one may
    Instruction describe(bool is_entry, const KernelNops& kernel) const;
    bool is_exact_nop5() const;
    bool is_entry_mark() const;  // endbr64

private:
    bool is(ZydisOpcodeMap map, unsigned first, unsigned last) const;
    bool is_near_branch() const;
    bool has_prefix(std::uint8_t prefix) const;
    bool is_kernels_nop() const;

    std::uint64_t address_ = 0;
    std::span<const std::uint8_t> bytes_;
    ZydisDecodedInstruction raw_{};
};

}  // namespace hostrange
