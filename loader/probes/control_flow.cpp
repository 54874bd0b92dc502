// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/control_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace hostrange {

namespace {

constexpr std::uint64_t kMaxFunctionBytes = 4 << 20;
constexpr std::size_t kTableCodeWindow = 32;  // instructions before a jump among which the load from its table is

// Marks of a byte.
constexpr std::uint8_t kStarts = 1;   // an instruction begins here
constexpr std::uint8_t kCovered = 2;  // it belongs to an instruction
constexpr std::uint8_t kIgnored = 4;  // padding, or data that no code leads to
constexpr std::uint8_t kLockPrefix = 0xf0;

using Kind = FlowInstruction::Kind;
using Indirect = FlowInstruction::Indirect;

Kind kind_of(const DecodedInstruction& instruction) {
    if (instruction.is_ret()) return Kind::kRet;
    if (instruction.is_direct_jump()) return Kind::kJump;
    if (instruction.is_indirect_jump()) return Kind::kIndirectJump;
    if (instruction.is_conditional_jump()) return Kind::kConditionalJump;
    if (instruction.ends_flow()) return Kind::kStop;
    return instruction.is_call() ? Kind::kCall : Kind::kPlain;
}

}  // namespace

class FlowDecoder {
public:
    FlowDecoder(const ElfFile& file, const std::vector<CodePart>& requested) : file_(file), requested_(requested) {}

    ControlFlow decode(const std::vector<std::uint64_t>& landing_pads) {
        if (read_parts()) {
            follow_from(requested_.front().address);
            for (const std::uint64_t pad : landing_pads) {
                if (flow_.contains(pad)) {
                    flow_.branch_targets_.insert(pad);
                    follow_from(pad);
                }
            }
            sort();
            classify_indirect_jumps();
            // Code that is reached by tables has to be all there.
            gaps_matter_ = has_tables_;
            if (flow_.problem_.empty()) decode_gaps();
            finish();
        }
        return std::move(flow_);
    }

private:
    bool fail(const std::string& problem) {
        if (flow_.problem_.empty()) flow_.problem_ = problem;
        return false;
    }

    bool read_parts() {
        std::uint64_t total = 0;
        for (const CodePart& part : requested_) total += std::min(part.size, kMaxFunctionBytes + 1);
        if (requested_.empty() || total > kMaxFunctionBytes)
            return fail(fmt::format("its code is larger than {} MiB", kMaxFunctionBytes >> 20));
        for (const CodePart& part : requested_) {
            ControlFlow::Part read{part.address, file_.code(part.address, part.size), {}};
            if (read.bytes.empty()) return fail("its code is not in the file");
            read.marks.resize(read.bytes.size());
            flow_.parts_.push_back(std::move(read));
        }
        return true;
    }

    ControlFlow::Part* part_of(std::uint64_t address) {
        for (ControlFlow::Part& part : flow_.parts_)
            if (part.contains(address)) return &part;
        return nullptr;
    }

    void follow_from(std::uint64_t address) {
        pending_.push_back(address);
        while (!pending_.empty() && flow_.problem_.empty()) {
            const std::uint64_t next = pending_.back();
            pending_.pop_back();
            run(next);
        }
    }

    // Decodes from here until the code does not go on, or has been decoded before.
    void run(std::uint64_t address) {
        bool call_before = false;
        while (true) {
            ControlFlow::Part* part = part_of(address);
            if (part == nullptr) {
                // A call in last place is one that never returns: compilers leave out what would follow.
                if (!call_before) runs_past_end_.insert(address);
                return;
            }
            const std::uint64_t at = address - part->address;
            if ((part->marks[at] & kStarts) != 0) return;
            if ((part->marks[at] & kCovered) != 0) {
                // Hand-written code jumps past a lock prefix: what follows is the same either way.
                if (at > 0 && (part->marks[at - 1] & kStarts) != 0 && part->bytes[at - 1] == kLockPrefix) return;
                fail(fmt::format("a jump leads into the middle of an instruction, to {:#x}", address));
                return;
            }
            const auto instruction = DecodedInstruction::decode(std::span(part->bytes).subspan(at), address);
            if (!instruction) {
                fail(fmt::format("its code cannot be decoded at {:#x}", address));
                return;
            }
            for (std::uint64_t i = 1; i < instruction->size(); ++i) {
                if ((part->marks[at + i] & kStarts) == 0) continue;
                fail(fmt::format("a jump leads into the middle of an instruction, to {:#x}", address + i));
                return;
            }
            for (std::uint64_t i = 0; i < instruction->size(); ++i) part->marks[at + i] |= kCovered;
            part->marks[at] |= kStarts;
            const FlowInstruction& added = add(*instruction);
            if (!added.goes_on()) return;
            if (!instruction->is_padding()) call_before = added.kind == Kind::kCall;
            address = added.end();
        }
    }

    const FlowInstruction& add(const DecodedInstruction& instruction) {
        FlowInstruction added{instruction.address(), static_cast<std::uint8_t>(instruction.size()),
                              kind_of(instruction)};
        if (added.kind == Kind::kJump || added.kind == Kind::kConditionalJump) {
            added.target = instruction.branch_target();
            if (part_of(added.target) != nullptr) pending_.push_back(added.target);
        }
        flow_.instructions_.push_back(added);
        return flow_.instructions_.back();
    }

    void sort() {
        std::sort(flow_.instructions_.begin(), flow_.instructions_.end(),
                  [](const FlowInstruction& a, const FlowInstruction& b) { return a.address < b.address; });
    }

    void classify_indirect_jumps() {
        has_tables_ = false;
        for (std::size_t i = 0; i < flow_.instructions_.size(); ++i) {
            FlowInstruction& jump = flow_.instructions_[i];
            if (jump.kind != Kind::kIndirectJump) continue;
            jump.indirect = classify(i);
            has_tables_ |= jump.indirect != Indirect::kLeaves;
        }
    }

    Indirect classify(std::size_t index) const {
        const DecodedInstruction jump = flow_.decoded(flow_.instructions_[index]);
        // Compilers put notrack only on jumps through a table of the function's own labels.
        if (jump.is_notrack()) return Indirect::kInside;
        if (jump.has_memory_operand()) {
            switch (jump.memory_index_scale()) {
                case 0:
                    return Indirect::kLeaves;
                case 8:
                    return Indirect::kInside;
                default:
                    return Indirect::kUnknown;
            }
        }
        const std::optional<unsigned> target = jump.register_operand();
        if (!target) return Indirect::kUnknown;
        // Tables of offsets: load an entry, add the table's address. Tables of addresses: load into the register.
        bool added = false;
        std::uint64_t next = flow_.instructions_[index].address;
        for (std::size_t back = 1; back <= std::min(index, kTableCodeWindow); ++back) {
            const FlowInstruction& before = flow_.instructions_[index - back];
            if (before.end() != next || !before.goes_on()) break;
            next = before.address;
            const DecodedInstruction step = flow_.decoded(before);
            if (step.loaded_register() == target) return Indirect::kInside;
            if (step.added_register() == target) added = true;
            if (added && step.loads_from_table()) return Indirect::kInside;
        }
        return Indirect::kLeaves;
    }

    // What no code has led to. Decoding may show further indirect jumps, but only further tables matter then.
    void decode_gaps() {
        for (std::size_t index = 0; index < flow_.parts_.size(); ++index) {
            std::uint64_t end = flow_.parts_[index].bytes.size();
            if (requested_[index].size_is_limit) end = furthest(flow_.parts_[index]);
            for (std::uint64_t at = 0; at < end && flow_.problem_.empty();) {
                ControlFlow::Part& part = flow_.parts_[index];
                if ((part.marks[at] & (kCovered | kIgnored)) != 0) {
                    ++at;
                    continue;
                }
                const auto instruction =
                    DecodedInstruction::decode(std::span(part.bytes).subspan(at), part.address + at);
                if (part.bytes[at] == 0 || (instruction && instruction->is_padding())) {
                    const std::uint64_t size = part.bytes[at] == 0 ? 1 : instruction->size();
                    for (std::uint64_t i = 0; i < size; ++i) part.marks[at + i] |= kIgnored;
                    at += size;
                    continue;
                }
                try_gap(index, at);
                flow_.parts_[index].marks[at] |= kIgnored;  // so that this ends whatever the parts are
            }
        }
        sort();
        classify_indirect_jumps();
    }

    static std::uint64_t furthest(const ControlFlow::Part& part) {
        for (std::uint64_t at = part.marks.size(); at > 0; --at)
            if ((part.marks[at - 1] & kCovered) != 0) return at;
        return 0;
    }

    void try_gap(std::size_t index, std::uint64_t at) {
        const std::size_t count = flow_.instructions_.size();
        const std::set<std::uint64_t> past_end = runs_past_end_;
        follow_from(flow_.parts_[index].address + at);
        if (flow_.problem_.empty() || gaps_matter_) return;
        // Not code, or none that anything leads to: forget what was decoded.
        flow_.problem_.clear();
        pending_.clear();
        for (std::size_t i = count; i < flow_.instructions_.size(); ++i) {
            ControlFlow::Part& part = *part_of(flow_.instructions_[i].address);
            const std::uint64_t start = flow_.instructions_[i].address - part.address;
            for (std::uint64_t byte = start; byte < start + flow_.instructions_[i].size; ++byte) part.marks[byte] = 0;
        }
        flow_.instructions_.resize(count);
        runs_past_end_ = past_end;
        ControlFlow::Part& part = flow_.parts_[index];
        for (std::uint64_t i = at; i < part.marks.size() && (part.marks[i] & kCovered) == 0; ++i)
            part.marks[i] |= kIgnored;
    }

    void finish() {
        for (const FlowInstruction& instruction : flow_.instructions_) {
            if (instruction.target != 0) flow_.branch_targets_.insert(instruction.target);
        }
        if (has_tables_) {
            const FlowInstruction* before = nullptr;
            for (const FlowInstruction& instruction : flow_.instructions_) {
                const bool follows = before != nullptr && before->end() == instruction.address && before->goes_on();
                if (!follows && instruction.address != flow_.entry()) flow_.branch_targets_.insert(instruction.address);
                before = &instruction;
            }
        }
        flow_.runs_past_end_ = !runs_past_end_.empty();
        for (std::size_t i = 0; i < flow_.parts_.size(); ++i) {
            ControlFlow::Part& part = flow_.parts_[i];
            if (requested_[i].size_is_limit) part.bytes.resize(furthest(part));
            part.marks = {};
        }
    }

    const ElfFile& file_;
    const std::vector<CodePart>& requested_;
    ControlFlow flow_;
    std::vector<std::uint64_t> pending_;
    std::set<std::uint64_t> runs_past_end_;
    bool has_tables_ = false;
    bool gaps_matter_ = false;
};

ControlFlow ControlFlow::decode(const ElfFile& file, const std::vector<CodePart>& parts,
                                const std::vector<std::uint64_t>& landing_pads) {
    return FlowDecoder(file, parts).decode(landing_pads);
}

const ControlFlow::Part* ControlFlow::part_of(std::uint64_t address) const {
    for (const Part& part : parts_)
        if (part.contains(address)) return &part;
    return nullptr;
}

const FlowInstruction* ControlFlow::at(std::uint64_t address) const {
    const auto found =
        std::lower_bound(instructions_.begin(), instructions_.end(), address,
                         [](const FlowInstruction& one, std::uint64_t wanted) { return one.address < wanted; });
    return found != instructions_.end() && found->address == address ? &*found : nullptr;
}

DecodedInstruction ControlFlow::decoded(const FlowInstruction& instruction) const {
    const Part* part = part_of(instruction.address);
    return DecodedInstruction::decode(std::span(part->bytes).subspan(instruction.address - part->address),
                                      instruction.address)
        .value();
}

bool ControlFlow::contains(std::uint64_t address) const {
    return part_of(address) != nullptr;
}

bool ControlFlow::is_branch_target(std::uint64_t address) const {
    return branch_targets_.contains(address);
}

}  // namespace hostrange
