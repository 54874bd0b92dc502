// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/inlined_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace hostrange {

namespace {

constexpr int kMaxGap = 8;  // instructions of other code between two pieces of the inlined one
constexpr std::size_t kMaxExits = 64;
constexpr std::int32_t kReturnAddressBytes = 8;

using Kind = FlowInstruction::Kind;

class InlinedReader {
public:
    InlinedReader(const WholeFunction& function, const FrameTable& frames, const std::vector<AddressRange>& ranges,
                  const std::set<std::uint64_t>& boundaries, const KernelNops& kernel)
        : function_(function),
          flow_(function.flow),
          frames_(frames),
          ranges_(ranges),
          boundaries_(boundaries),
          kernel_(kernel) {
        for (const FlowInstruction& instruction : flow_.instructions())
            for (const std::uint64_t successor : successors(instruction))
                predecessors_[successor].push_back(instruction.address);
    }

    InlinedCode read(std::uint64_t entry) {
        if (!function_.code.problem.empty()) {
            fail("the function it is inlined into: " + function_.code.problem);
            return std::move(code_);
        }
        if (!is_inside(entry)) entry = ranges_.front().begin;
        if (flow_.at(entry) == nullptr) {
            fail(fmt::format("the debug information says it begins at {:#x}, where no instruction begins", entry));
            return std::move(code_);
        }
        place(entry, code_.entry);
        follow(entry);
        // Handlers of its own are entered by exceptions alone.
        for (const LandingPad& pad : function_.landing_pads)
            if (is_inside(pad.address) && leads_to(pad)) follow(pad.address);
        find_exits();
        note_other_entries(entry);
        return std::move(code_);
    }

private:
    void fail(const std::string& problem) {
        if (code_.problem.empty()) code_.problem = problem;
    }

    bool is_inside(std::uint64_t address) const {
        return std::any_of(ranges_.begin(), ranges_.end(),
                           [&](const AddressRange& range) { return address >= range.begin && address < range.end; });
    }

    // Other code that has been moved in between, after which the inlined code goes on; only it leads there.
    bool is_short_gap(const FlowInstruction* instruction) const {
        for (int step = 0; step < kMaxGap && instruction != nullptr; ++step) {
            if (is_inside(instruction->address)) return true;
            if (instruction->kind != Kind::kPlain) return false;
            if (step > 0 ? flow_.is_branch_target(instruction->address) : is_reached_from_outside(instruction->address))
                return false;
            instruction = flow_.at(instruction->end());
        }
        return false;
    }

    bool is_reached_from_outside(std::uint64_t address) const {
        const auto found = predecessors_.find(address);
        return found == predecessors_.end() ||
               std::any_of(found->second.begin(), found->second.end(),
                           [&](std::uint64_t predecessor) { return !visited_.contains(predecessor); });
    }

    void follow(std::uint64_t address) {
        std::vector<std::uint64_t> pending = {address};
        while (!pending.empty()) {
            const std::uint64_t next = pending.back();
            pending.pop_back();
            const FlowInstruction* instruction = flow_.at(next);
            if (instruction == nullptr || !visited_.insert(next).second) continue;
            for (const std::uint64_t successor : successors(*instruction)) {
                const FlowInstruction* to = flow_.at(successor);
                if (to == nullptr) continue;
                if (is_inside(successor) || is_short_gap(to)) pending.push_back(successor);
            }
            if (instruction->kind == Kind::kIndirectJump && instruction->indirect != FlowInstruction::Indirect::kLeaves)
                fail(fmt::format("it jumps through a table at {:#x}", instruction->address));
        }
    }

    static std::vector<std::uint64_t> successors(const FlowInstruction& instruction) {
        std::vector<std::uint64_t> result;
        if (instruction.goes_on()) result.push_back(instruction.end());
        if (instruction.target != 0) result.push_back(instruction.target);
        return result;
    }

    bool leads_to(const LandingPad& pad) const {
        const auto first = visited_.lower_bound(pad.begin);
        return first != visited_.end() && *first < pad.end;
    }

    void find_exits() {
        std::set<std::uint64_t> after;
        for (const std::uint64_t address : visited_) {
            const FlowInstruction& instruction = *flow_.at(address);
            for (const std::uint64_t successor : successors(instruction))
                if (!visited_.contains(successor) && flow_.at(successor) != nullptr) after.insert(successor);
            for (const ExitInstruction& exit : function_.code.exits)
                if (exit.instruction.address == address) add_end(exit);
        }
        for (const std::uint64_t address : after)
            add_exit(InlinedExit::Kind::kAfter, address, is_reached_from_outside(address));
        std::set<std::uint64_t> landings;
        for (const LandingPad& pad : function_.landing_pads)
            if (leads_to(pad) && !visited_.contains(pad.address) && !after.contains(pad.address))
                landings.insert(pad.address);
        for (const std::uint64_t address : landings) add_exit(InlinedExit::Kind::kLanding, address);
    }

    void add_end(const ExitInstruction& exit) {
        InlinedExit added;
        added.kind = exit.kind == ExitInstruction::Kind::kRet ? InlinedExit::Kind::kRet : InlinedExit::Kind::kTailJump;
        added.jump = exit;
        added.place.instruction = exit.instruction;  // there the stack pointer is that of the entry
        code_.exits.push_back(std::move(added));
    }

    void add_exit(InlinedExit::Kind kind, std::uint64_t address, bool is_shared = false) {
        if (code_.exits.size() >= kMaxExits) {
            fail(fmt::format("it is left in more than {} ways", kMaxExits));
            return;
        }
        InlinedExit added;
        added.kind = kind;
        added.is_shared = is_shared;
        place(address, added.place);
        code_.exits.push_back(std::move(added));
    }

    void place(std::uint64_t address, InnerPlace& result) {
        std::string refusal;
        const PlaceRules rules{.boundaries = &boundaries_};
        const std::optional<ProbePlace> place = cheapest_place(flow_, address, rules, kernel_, refusal);
        if (!place) {
            fail(fmt::format("the instruction at {:#x} {}", address, refusal));
            return;
        }
        const std::uint64_t at = place->instruction.address;
        const std::optional<CallFrame> frame = frames_.at(at);
        const std::optional<FrameAddress> entry_stack = frame ? frames_.frame_address(*frame, at) : std::nullopt;
        if (!entry_stack) {
            fail(fmt::format("it is not known how far the stack pointer has moved at {:#x}", at));
            return;
        }
        result = {place->instruction, entry_stack->from_frame_pointer, entry_stack->offset - kReturnAddressBytes};
        constexpr std::int32_t kMost = INT16_MAX - 16;  // of the attach cookie, less its levels
        if (result.stack_adjust > kMost)
            fail(fmt::format("it lies in a function whose frame is larger than {} KiB", kMost >> 10));
    }

    // Jump threading and the like give inlined code a second entry, or a second copy of its beginning.
    void note_other_entries(std::uint64_t entry) {
        for (const FlowInstruction& instruction : flow_.instructions()) {
            if (visited_.contains(instruction.address)) continue;
            for (const std::uint64_t successor : successors(instruction)) {
                if (successor == entry || !visited_.contains(successor)) continue;
                code_.note =
                    fmt::format("its code is also entered at {:#x}: what begins there is not counted", successor);
                return;
            }
        }
    }

    const WholeFunction& function_;
    const ControlFlow& flow_;
    const FrameTable& frames_;
    const std::vector<AddressRange>& ranges_;
    const std::set<std::uint64_t>& boundaries_;
    const KernelNops& kernel_;
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> predecessors_;
    std::set<std::uint64_t> visited_;
    InlinedCode code_;
};

}  // namespace

InlinedCode read_inlined_code(const WholeFunction& function, const FrameTable& frames,
                              const std::vector<AddressRange>& ranges, std::uint64_t entry,
                              const std::set<std::uint64_t>& boundaries, const KernelNops& kernel) {
    return InlinedReader(function, frames, ranges, boundaries, kernel).read(entry);
}

}  // namespace hostrange
