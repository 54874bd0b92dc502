// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/instruction.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cerrno>

namespace hostrange {

namespace {

constexpr unsigned kNoIndex = 4;  // in a SIB byte
constexpr unsigned kRipRelative = 5;
constexpr std::uint64_t kPageBytes = 4096;
constexpr long kUprobeSystemCall = 336;

const ZydisDecoder& decoder() {
    static const ZydisDecoder instance = [] {
        ZydisDecoder decoder;
        ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
        return decoder;
    }();
    return instance;
}

const ZydisFormatter& formatter() {
    static const ZydisFormatter instance = [] {
        ZydisFormatter formatter;
        ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL);
        ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
        ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
        ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
        ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
        return formatter;
    }();
    return instance;
}

// One-byte opcodes on which the kernel refuses a probe in 64-bit code. It looks up the opcode byte of VEX and EVEX
// instructions in the same table, so that vpxor (ef) and vmovdqa (6f) are refused as if they were in and out.
const std::bitset<256>& refused_opcodes() {
    static const std::bitset<256> instance = [] {
        std::bitset<256> refused;
        for (const unsigned opcode :
             {0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x62,
              0x6c, 0x6d, 0x6e, 0x6f, 0x82, 0x9a, 0xcc, 0xcd, 0xce, 0xcf, 0xd4, 0xd5, 0xd6, 0xe4,
              0xe5, 0xe6, 0xe7, 0xea, 0xec, 0xed, 0xee, 0xef, 0xf1, 0xf4, 0xfa, 0xfb})
            refused.set(opcode);
        return refused;
    }();
    return instance;
}

}  // namespace

KernelNops running_kernel_nops() {
    static const KernelNops instance = [] {
        errno = 0;
        syscall(kUprobeSystemCall);
        return KernelNops{.optimises_nop5 = errno == ENXIO,
                          .optimises_nop10 = errno == EPROTO,
                          .emulates_all = errno == ENXIO || errno == EPROTO};
    }();
    return instance;
}

std::optional<DecodedInstruction> DecodedInstruction::decode(std::span<const std::uint8_t> bytes,
                                                             std::uint64_t address) {
    DecodedInstruction result;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder(), nullptr, bytes.data(), bytes.size(), &result.raw_)))
        return std::nullopt;
    result.address_ = address;
    result.bytes_ = bytes.first(result.raw_.length);
    return result;
}

bool DecodedInstruction::is(ZydisOpcodeMap map, unsigned first, unsigned last) const {
    return raw_.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && raw_.opcode_map == map && raw_.opcode >= first &&
           raw_.opcode <= last;
}

// A call or jump to an address that is in the instruction, other than loop and jrcxz.
bool DecodedInstruction::is_near_branch() const {
    return is(ZYDIS_OPCODE_MAP_DEFAULT, 0xe8, 0xe9) || is(ZYDIS_OPCODE_MAP_DEFAULT, 0xeb, 0xeb) ||
           is(ZYDIS_OPCODE_MAP_DEFAULT, 0x70, 0x7f) || is(ZYDIS_OPCODE_MAP_0F, 0x80, 0x8f);
}

bool DecodedInstruction::has_prefix(std::uint8_t prefix) const {
    return std::any_of(raw_.raw.prefixes, raw_.raw.prefixes + raw_.raw.prefix_count,
                       [&](const auto& candidate) { return candidate.value == prefix; });
}

bool DecodedInstruction::is_exact_nop5() const {
    constexpr std::array<std::uint8_t, 5> kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};
    return std::equal(bytes_.begin(), bytes_.end(), kNop5.begin(), kNop5.end());
}

bool DecodedInstruction::is_ret() const {
    return is(ZYDIS_OPCODE_MAP_DEFAULT, 0xc2, 0xc3);
}

bool DecodedInstruction::is_call() const {
    return raw_.meta.category == ZYDIS_CATEGORY_CALL;
}

bool DecodedInstruction::is_direct_jump() const {
    return is(ZYDIS_OPCODE_MAP_DEFAULT, 0xe9, 0xe9) || is(ZYDIS_OPCODE_MAP_DEFAULT, 0xeb, 0xeb);
}

bool DecodedInstruction::is_conditional_jump() const {
    return raw_.raw.imm[0].size != 0 && raw_.raw.imm[0].is_relative && !is_direct_jump() && !is_call();
}

bool DecodedInstruction::is_indirect_jump() const {
    return raw_.meta.category == ZYDIS_CATEGORY_UNCOND_BR && !is_direct_jump();
}

bool DecodedInstruction::is_padding() const {
    return raw_.mnemonic == ZYDIS_MNEMONIC_NOP || raw_.mnemonic == ZYDIS_MNEMONIC_INT3;
}

bool DecodedInstruction::ends_flow() const {
    switch (raw_.mnemonic) {
        case ZYDIS_MNEMONIC_RET:
        case ZYDIS_MNEMONIC_JMP:
        case ZYDIS_MNEMONIC_UD0:
        case ZYDIS_MNEMONIC_UD1:
        case ZYDIS_MNEMONIC_UD2:
        case ZYDIS_MNEMONIC_HLT:
        case ZYDIS_MNEMONIC_INT3:
            return true;
        default:
            return false;
    }
}

std::uint64_t DecodedInstruction::branch_target() const {
    return address_ + raw_.length + static_cast<std::uint64_t>(raw_.raw.imm[0].value.s);
}

std::optional<unsigned> DecodedInstruction::condition() const {
    const bool looks_at_flags = is(ZYDIS_OPCODE_MAP_DEFAULT, 0x70, 0x7f) || is(ZYDIS_OPCODE_MAP_0F, 0x80, 0x8f);
    return looks_at_flags ? std::optional<unsigned>(raw_.opcode & 0xf) : std::nullopt;
}

std::optional<std::int32_t> DecodedInstruction::stack_growth() const {
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes_.data(), bytes_.size(), &instruction, operands)))
        return std::nullopt;
    const auto is_stack_pointer = [](const ZydisDecodedOperand& operand) {
        return operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
               ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value) == ZYDIS_REGISTER_RSP;
    };
    const bool writes = std::any_of(operands, operands + instruction.operand_count, [&](const auto& operand) {
        return is_stack_pointer(operand) && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    });
    if (!writes) return 0;
    const bool explicit_register = instruction.operand_count_visible > 0 && is_stack_pointer(operands[0]);
    switch (instruction.mnemonic) {
        case ZYDIS_MNEMONIC_PUSH:
            return instruction.operand_width == 64 ? std::optional<std::int32_t>(8) : std::nullopt;
        case ZYDIS_MNEMONIC_POP:
            return instruction.operand_width == 64 && !explicit_register ? std::optional<std::int32_t>(-8)
                                                                         : std::nullopt;
        case ZYDIS_MNEMONIC_SUB:
        case ZYDIS_MNEMONIC_ADD: {
            constexpr std::int64_t kMost = INT16_MAX;  // of the attach cookie
            if (!explicit_register || operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return std::nullopt;
            const std::int64_t value = operands[1].imm.value.s;
            if (value > kMost || value < -kMost) return std::nullopt;
            return static_cast<std::int32_t>(instruction.mnemonic == ZYDIS_MNEMONIC_SUB ? value : -value);
        }
        default:
            return std::nullopt;
    }
}

bool DecodedInstruction::is_entry_mark() const {
    return raw_.mnemonic == ZYDIS_MNEMONIC_ENDBR64;
}

// What arch/x86/kernel/uprobes.c takes for a nop (insn_is_nop): 90, and 0f 1f /0.
bool DecodedInstruction::is_kernels_nop() const {
    return raw_.mnemonic == ZYDIS_MNEMONIC_NOP && (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x90, 0x90) ||
                                                   (is(ZYDIS_OPCODE_MAP_0F, 0x1f, 0x1f) && raw_.raw.modrm.reg == 0));
}

bool DecodedInstruction::is_notrack() const {
    return has_prefix(0x3e);
}

bool DecodedInstruction::has_memory_operand() const {
    return (raw_.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && raw_.raw.modrm.mod != 3;
}

std::optional<std::uint64_t> DecodedInstruction::memory_rip_target() const {
    if (!has_memory_operand() || raw_.raw.modrm.mod != 0 || raw_.raw.modrm.rm != kRipRelative) return std::nullopt;
    return address_ + raw_.length + static_cast<std::uint64_t>(raw_.raw.disp.value);
}

unsigned DecodedInstruction::memory_index_scale() const {
    if (!has_memory_operand() || (raw_.attributes & ZYDIS_ATTRIB_HAS_SIB) == 0) return 0;
    if (raw_.raw.sib.index == kNoIndex && raw_.raw.rex.X == 0) return 0;
    return 1u << raw_.raw.sib.scale;
}

std::optional<unsigned> DecodedInstruction::register_operand() const {
    if ((raw_.attributes & ZYDIS_ATTRIB_HAS_MODRM) == 0 || raw_.raw.modrm.mod != 3) return std::nullopt;
    return raw_.raw.modrm.rm + 8u * raw_.raw.rex.B;
}

bool DecodedInstruction::loads_from_table() const {
    return (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x63, 0x63) || is(ZYDIS_OPCODE_MAP_DEFAULT, 0x8b, 0x8b)) &&
           memory_index_scale() != 0;
}

std::optional<unsigned> DecodedInstruction::loaded_register() const {
    if (!is(ZYDIS_OPCODE_MAP_DEFAULT, 0x8b, 0x8b) || memory_index_scale() != 8 || raw_.operand_width != 64)
        return std::nullopt;
    return raw_.raw.modrm.reg + 8u * raw_.raw.rex.R;
}

std::optional<unsigned> DecodedInstruction::added_register() const {
    if (raw_.operand_width != 64) return std::nullopt;
    if (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x03, 0x03)) return raw_.raw.modrm.reg + 8u * raw_.raw.rex.R;
    if (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x01, 0x01)) return register_operand();
    return std::nullopt;
}

InstructionClass DecodedInstruction::instruction_class(bool is_entry, const KernelNops& kernel) const {
    // The kernel patches only within a page.
    const bool crosses_page = address_ % kPageBytes > kPageBytes - bytes_.size();
    if (kernel.optimises_nop5 && is_exact_nop5() && is_entry && !crosses_page) return InstructionClass::kOptimisedNop;
    const bool one_byte_nop = is(ZYDIS_OPCODE_MAP_DEFAULT, 0x90, 0x90) && raw_.mnemonic == ZYDIS_MNEMONIC_NOP;
    const bool push = is(ZYDIS_OPCODE_MAP_DEFAULT, 0x50, 0x57) &&
                      (bytes_.size() == 1 || (bytes_.size() == 2 && bytes_.front() == 0x41));
    return one_byte_nop || push || is_near_branch() || (kernel.emulates_all && is_kernels_nop())
               ? InstructionClass::kEmulated
               : InstructionClass::kSingleStep;
}

std::string DecodedInstruction::refusal() const {
    const std::string refused = ": the kernel refuses probes there";
    if (raw_.length == 10 && raw_.mnemonic == ZYDIS_MNEMONIC_NOP)
        return "is a ten-byte nop: Linux 6.18 may accept a probe there and never fire it";
    if (has_prefix(0xf0)) return "has a lock prefix" + refused;
    // They mean nothing in 64-bit code, but serve as branch hints, notrack, and to make an instruction longer.
    for (const std::uint8_t prefix : {0x26, 0x2e, 0x36, 0x3e})
        if (has_prefix(prefix)) return "has a segment prefix" + refused;
    if (is_near_branch() && has_prefix(0x66)) return "is a branch with an operand-size prefix" + refused;
    if (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x90, 0x90) && raw_.mnemonic == ZYDIS_MNEMONIC_XCHG)
        return "is an exchange of registers that kernels take for a nop";
    if (is(ZYDIS_OPCODE_MAP_DEFAULT, 0x8e, 0x8e) && raw_.raw.modrm.reg == 2) return "loads the stack segment" + refused;
    // The kernel accepts these, and single-steps a system call or a fault.
    for (const unsigned opcode : {0x05, 0x07, 0x0b, 0x34, 0x35})
        if (is(ZYDIS_OPCODE_MAP_0F, opcode, opcode)) return "is a system call or a trap, where no probe is safe";
    const bool one_byte_table = raw_.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX ||
                                raw_.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ||
                                is(ZYDIS_OPCODE_MAP_DEFAULT, 0, 255);
    if (one_byte_table && refused_opcodes()[raw_.opcode]) return "has an opcode on which the kernel refuses probes";
    return "";
}

Instruction DecodedInstruction::describe(bool is_entry, const KernelNops& kernel) const {
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    char text[256] = "";
    if (ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder(), bytes_.data(), bytes_.size(), &instruction, operands)))
        ZydisFormatterFormatInstruction(&formatter(), &instruction, operands, instruction.operand_count_visible, text,
                                        sizeof text, address_, nullptr);
    return {address_, text, instruction_class(is_entry, kernel)};
}

}  // namespace hostrange
