// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/inlined_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "loader/probes/inlined_pieces.h"

namespace hostrange {

namespace {

constexpr std::size_t kMaxExits = 64;

using Kind = FlowInstruction::Kind;

class InlinedReader {
public:
    InlinedReader(const WholeFunction& function, const FlowGraph& graph, const FrameTable& frames,
                  const InlinedMarks& marks, const KernelNops& kernel)
        : function_(function), flow_(function.flow), graph_(graph), frames_(frames), marks_(marks), kernel_(kernel) {}

    InlinedCode read(const InlinedInstance& instance) {
        if (!function_.code.problem.empty()) {
            fail("the function it is inlined into: " + function_.code.problem);
            return std::move(code_);
        }
        const InlinedBeginnings found = find_inlined_beginnings(function_, graph_, instance, marks_.beginnings);
        code_.doubt = found.doubt;
        if (!found.problem.empty()) fail(found.problem);
        for (const InlinedBeginning& beginning : found.places) {
            InlinedEntry& entry = code_.entries.emplace_back();
            entry.ends_another = beginning.ends_another;
            entry.repeats = beginning.repeats;
            place(beginning.address, entry.place);
        }
        for (const InlinedPiece& piece : found.pieces) inside_.insert(piece.code.begin(), piece.code.end());
        refuse_tables();
        find_exits(found.pieces);
        return std::move(code_);
    }

private:
    void fail(const std::string& problem) {
        if (code_.problem.empty()) code_.problem = problem;
    }

    void refuse_tables() {
        for (const std::uint64_t address : inside_) {
            const FlowInstruction& instruction = *flow_.at(address);
            if (instruction.kind == Kind::kIndirectJump && instruction.indirect != FlowInstruction::Indirect::kLeaves)
                fail(fmt::format("it jumps through a table at {:#x}", address));
        }
    }

    bool leads_to(const LandingPad& pad) const {
        const auto first = inside_.lower_bound(pad.begin);
        return first != inside_.end() && *first < pad.end;
    }

    void find_exits(const std::vector<InlinedPiece>& pieces) {
        // What runs as long as the call does not throw: compilers may put code where exceptions land into it.
        const auto is_inside = [&](std::uint64_t address) { return inside_.contains(address); };
        std::vector<std::uint64_t> entries;
        for (const InlinedPiece& piece : pieces)
            entries.insert(entries.end(), piece.entries.begin(), piece.entries.end());
        const std::set<std::uint64_t> reached = graph_.reached(entries, is_inside);
        std::set<std::uint64_t> after, landings;
        for (const std::uint64_t address : inside_) {
            for (const std::uint64_t successor : graph_.successors(*flow_.at(address)))
                if (!inside_.contains(successor) && flow_.at(successor) != nullptr)
                    (reached.contains(address) ? after : landings).insert(successor);
            for (const ExitInstruction& exit : function_.code.exits)
                if (exit.instruction.address == address) add_end(exit);
        }
        // Code of its own that cleans up may also jump to where exceptions land, but nothing gets there without one.
        for (const LandingPad& pad : function_.landing_pads)
            if (!inside_.contains(pad.address) && (after.erase(pad.address) > 0 || leads_to(pad)))
                landings.insert(pad.address);
        for (const std::uint64_t address : after)
            add_exit(InlinedExit::Kind::kAfter, address, graph_.is_entered(address, is_inside));
        for (const std::uint64_t address : landings)
            if (!after.contains(address)) add_exit(InlinedExit::Kind::kLanding, address);
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
        const PlaceRules rules{.boundaries = &marks_.boundaries};
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

    const WholeFunction& function_;
    const ControlFlow& flow_;
    const FlowGraph& graph_;
    const FrameTable& frames_;
    const InlinedMarks& marks_;
    const KernelNops& kernel_;
    std::set<std::uint64_t> inside_;  // addresses of the call's instructions
    InlinedCode code_;
};

}  // namespace

InlinedCode read_inlined_code(const WholeFunction& function, const FlowGraph& graph, const FrameTable& frames,
                              const InlinedInstance& instance, const InlinedMarks& marks, const KernelNops& kernel) {
    return InlinedReader(function, graph, frames, marks, kernel).read(instance);
}

}  // namespace hostrange
