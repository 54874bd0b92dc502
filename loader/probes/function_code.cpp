// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/function_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <span>

#include "loader/probes/instruction.h"

namespace hostrange {

namespace {

constexpr std::uint64_t kMaxFunctionBytes = 4 << 20;
constexpr std::size_t kMaxEnds = 4096;
constexpr std::size_t kTableCodeWindow = 32;  // instructions before a jump among which the load from its table is

struct DecodedPart {
    std::uint64_t address = 0;
    std::vector<std::uint8_t> bytes;
    std::vector<bool> starts;  // by byte: an instruction begins here

    bool contains(std::uint64_t target) const { return target >= address && target - address < bytes.size(); }
};

enum class IndirectJump { kInside, kLeaves, kUnknown };

// What an instruction does that may be a step of reading a jump table.
struct TableStep {
    bool loads_from_table;
    std::optional<unsigned> loaded_register;
    std::optional<unsigned> added_register;
};

// `before`: the instructions that run before the jump in straight line, nearest last.
IndirectJump classify_indirect_jump(const DecodedInstruction& jump, const std::deque<TableStep>& before) {
    // Compilers put notrack only on jumps through a table of the function's own labels.
    if (jump.is_notrack()) return IndirectJump::kInside;
    if (jump.has_memory_operand()) {
        switch (jump.memory_index_scale()) {
            case 0:
                return IndirectJump::kLeaves;
            case 8:
                return IndirectJump::kInside;
            default:
                return IndirectJump::kUnknown;
        }
    }
    const std::optional<unsigned> target = jump.register_operand();
    if (!target) return IndirectJump::kUnknown;
    // Tables of offsets: load an entry, add the table's address. Tables of addresses: load into the register itself.
    bool added = false;
    for (auto step = before.rbegin(); step != before.rend(); ++step) {
        if (step->loaded_register == target) return IndirectJump::kInside;
        if (step->added_register == target) added = true;
        if (added && step->loads_from_table) return IndirectJump::kInside;
    }
    return IndirectJump::kLeaves;
}

class FunctionDecoder {
public:
    FunctionDecoder(const ElfFile& file, const std::vector<CodePart>& parts) : file_(file), requested_(parts) {}

    FunctionCode decode() {
        std::uint64_t total = 0;
        for (const CodePart& part : requested_) total += std::min(part.size, kMaxFunctionBytes + 1);
        if (requested_.empty() || total > kMaxFunctionBytes) {
            code_.problem = fmt::format("its code is larger than {} MiB", kMaxFunctionBytes >> 20);
            return std::move(code_);
        }
        for (const CodePart& part : requested_)
            if (!sweep(part)) return std::move(code_);
        resolve_jumps();
        if (code_.problem.empty()) order_exits();
        return std::move(code_);
    }

private:
    // A direct jump, of which only the whole function tells whether it leaves.
    struct Jump {
        std::size_t part;
        std::uint64_t address;
        std::uint64_t target;
        bool conditional;
    };

    bool is_entry(std::uint64_t address) const { return address == requested_.front().address; }

    bool fail(const std::string& problem) {
        code_.problem = problem;
        return false;
    }

    void add_exit(ExitInstruction::Kind kind, const DecodedInstruction& instruction, std::uint64_t jump_target,
                  std::uint64_t got_address) {
        const std::string refusal = instruction.refusal();
        if (!refusal.empty())
            fail(fmt::format("the instruction at {:#x} ends it and {}", instruction.address(), refusal));
        if (code_.exits.size() == kMaxEnds) {
            fail(fmt::format("it has more than {} ends", kMaxEnds));
            return;
        }
        code_.exits.push_back({kind, instruction.describe(is_entry(instruction.address())), jump_target, got_address});
    }

    void add_unresolved(const DecodedInstruction& jump) {
        if (code_.unresolved_jumps.size() < kMaxEnds)
            code_.unresolved_jumps.push_back(jump.describe(false));
        else
            fail(fmt::format("it has more than {} jumps that may end it", kMaxEnds));
    }

    void add_indirect_jump(const DecodedInstruction& jump, const std::deque<TableStep>& before) {
        switch (classify_indirect_jump(jump, before)) {
            case IndirectJump::kInside:
                break;
            case IndirectJump::kLeaves:
                add_exit(ExitInstruction::Kind::kTailJump, jump, 0, jump.memory_rip_target().value_or(0));
                break;
            case IndirectJump::kUnknown:
                add_unresolved(jump);
                break;
        }
    }

    bool describe_entry(const DecodedInstruction& instruction) {
        code_.entry = instruction.describe(true);
        const std::string refusal = instruction.refusal();
        return refusal.empty() || fail(fmt::format("its first instruction ({}) {}", code_.entry.text, refusal));
    }

    // Decodes a part from its first byte to its last, in a row.
    bool sweep(const CodePart& requested) {
        DecodedPart part{requested.address, file_.code(requested.address, requested.size), {}};
        if (part.bytes.empty()) return fail("its code is not in the file");
        part.starts.resize(part.bytes.size());
        std::deque<TableStep> straight_line;
        std::uint64_t furthest_target = 0;
        bool flow_ended = false;
        bool call_before = false;
        std::uint64_t at = 0;
        while (at < part.bytes.size()) {
            const std::uint64_t address = part.address + at;
            const auto instruction = DecodedInstruction::decode(std::span(part.bytes).subspan(at), address);
            const bool may_end_here = requested.size_is_limit && flow_ended && furthest_target < address;
            if (may_end_here && (!instruction || instruction->is_padding() || part.bytes[at] == 0)) break;
            if (!instruction) return fail(fmt::format("its code cannot be decoded at {:#x}", address));
            if (is_entry(address) && !describe_entry(*instruction)) return false;
            part.starts[at] = true;
            at += instruction->size();

            if (instruction->is_ret()) add_exit(ExitInstruction::Kind::kRet, *instruction, 0, 0);
            if (instruction->is_indirect_jump()) add_indirect_jump(*instruction, straight_line);
            if (instruction->is_direct_jump() || instruction->is_conditional_jump()) {
                const std::uint64_t target = instruction->branch_target();
                jumps_.push_back({parts_.size(), address, target, instruction->is_conditional_jump()});
                if (part.contains(target)) furthest_target = std::max(furthest_target, target);
            }

            // Padding does not change whether the code before it went on.
            if (!(instruction->is_padding() && (flow_ended || call_before))) {
                flow_ended = instruction->ends_flow();
                call_before = instruction->is_call();
            }
            straight_line.push_back(
                {instruction->loads_from_table(), instruction->loaded_register(), instruction->added_register()});
            if (straight_line.size() > kTableCodeWindow) straight_line.pop_front();
            if (flow_ended) straight_line.clear();
            if (!code_.problem.empty()) return false;
        }
        part.bytes.resize(at);
        // A call in last place is one that never returns: compilers leave out what would follow.
        if (!flow_ended && !call_before) code_.runs_past_end = true;
        parts_.push_back(std::move(part));
        return true;
    }

    void resolve_jumps() {
        for (const Jump& jump : jumps_) {
            const std::uint64_t target = jump.target;
            const auto part = std::find_if(parts_.begin(), parts_.end(),
                                           [&](const DecodedPart& candidate) { return candidate.contains(target); });
            if (part == parts_.end()) {
                const DecodedPart& from = parts_[jump.part];
                const auto instruction = DecodedInstruction::decode(
                    std::span(from.bytes).subspan(jump.address - from.address), jump.address);
                code_.outside_targets.push_back(target);
                if (jump.conditional)
                    add_unresolved(*instruction);
                else
                    add_exit(ExitInstruction::Kind::kTailJump, *instruction, target, 0);
                if (!code_.problem.empty()) return;
            } else if (!part->starts[target - part->address] && !skips_lock_prefix(*part, target)) {
                // Then the sweep has taken data for code, and no boundary it found can be trusted.
                fail(fmt::format("a jump at {:#x} leads into the middle of an instruction", jump.address));
                return;
            } else if (is_entry(target)) {
                code_.entry_is_branch_target = true;
            }
        }
    }

    // Hand-written code jumps past a lock prefix.
    static bool skips_lock_prefix(const DecodedPart& part, std::uint64_t target) {
        constexpr std::uint8_t kLock = 0xf0;
        const std::uint64_t at = target - part.address;
        return at > 0 && part.starts[at - 1] && part.bytes[at - 1] == kLock;
    }

    void order_exits() {
        std::sort(code_.exits.begin(), code_.exits.end(), [](const ExitInstruction& a, const ExitInstruction& b) {
            return a.instruction.address < b.instruction.address;
        });
    }

    const ElfFile& file_;
    const std::vector<CodePart>& requested_;
    std::vector<DecodedPart> parts_;
    std::vector<Jump> jumps_;
    FunctionCode code_;
};

}  // namespace

FunctionCode decode_function(const ElfFile& file, const std::vector<CodePart>& parts) {
    return FunctionDecoder(file, parts).decode();
}

}  // namespace hostrange
