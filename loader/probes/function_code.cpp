// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/function_code.h"

#include <fmt/format.h>

#include <algorithm>

namespace hostrange {

namespace {

constexpr std::size_t kMaxEnds = 4096;
// How far a probe may slide: what is left out of the scope must not be worth measuring.
constexpr int kMaxSlide = 16;  // instructions

using Kind = FlowInstruction::Kind;

class ExitFinder {
public:
    ExitFinder(const ControlFlow& flow, const KernelNops& kernel, FunctionCode& code)
        : flow_(flow), kernel_(kernel), code_(code) {}

    void run() {
        for (const FlowInstruction& instruction : flow_.instructions()) {
            look_at(instruction);
            if (!code_.problem.empty()) return;
        }
    }

private:
    void fail(const std::string& problem) {
        if (code_.problem.empty()) code_.problem = problem;
    }

    void add_exit(ExitInstruction::Kind kind, const DecodedInstruction& instruction, std::uint64_t jump_target,
                  std::uint64_t got_address) {
        const std::string refusal = instruction.refusal();
        if (!refusal.empty())
            fail(fmt::format("the instruction at {:#x} ends it and {}", instruction.address(), refusal));
        if (code_.exits.size() == kMaxEnds) fail(fmt::format("it has more than {} ends", kMaxEnds));
        if (!code_.problem.empty()) return;
        code_.exits.push_back(
            {kind, instruction.describe(false, kernel_), jump_target, got_address, instruction.condition()});
    }

    void add_unresolved(const DecodedInstruction& jump) {
        if (code_.unresolved_jumps.size() < kMaxEnds)
            code_.unresolved_jumps.push_back(jump.describe(false, kernel_));
        else
            fail(fmt::format("it has more than {} jumps that may end it", kMaxEnds));
    }

    void look_at(const FlowInstruction& instruction) {
        switch (instruction.kind) {
            case Kind::kRet:
                add_exit(ExitInstruction::Kind::kRet, flow_.decoded(instruction), 0, 0);
                break;
            case Kind::kIndirectJump:
                look_at_indirect_jump(instruction);
                break;
            case Kind::kJump:
            case Kind::kConditionalJump:
                look_at_jump(instruction);
                break;
            case Kind::kPlain:
            case Kind::kCall:
            case Kind::kStop:
                break;
        }
    }

    void look_at_indirect_jump(const FlowInstruction& instruction) {
        const DecodedInstruction jump = flow_.decoded(instruction);
        if (instruction.indirect == FlowInstruction::Indirect::kLeaves)
            add_exit(ExitInstruction::Kind::kTailJump, jump, 0, jump.memory_rip_target().value_or(0));
        if (instruction.indirect == FlowInstruction::Indirect::kUnknown) add_unresolved(jump);
    }

    void look_at_jump(const FlowInstruction& instruction) {
        if (flow_.contains(instruction.target)) {
            if (instruction.target == flow_.entry()) code_.entry_is_branch_target = true;
            return;
        }
        code_.outside_targets.push_back(instruction.target);
        const DecodedInstruction jump = flow_.decoded(instruction);
        // loop and jrcxz look at registers; nobody ends functions with them.
        if (instruction.kind == Kind::kConditionalJump && !jump.condition())
            add_unresolved(jump);
        else
            add_exit(ExitInstruction::Kind::kTailJump, jump, instruction.target, 0);
    }

    const ControlFlow& flow_;
    const KernelNops& kernel_;
    FunctionCode& code_;
};

}  // namespace

std::optional<ProbePlace> cheapest_place(const ControlFlow& flow, std::uint64_t address, const PlaceRules& rules,
                                         const KernelNops& kernel, std::string& refusal) {
    std::optional<ProbePlace> best;
    std::int32_t stack_growth = 0;
    bool nothing_written = rules.at_entry;  // the red zone below the stack pointer is not in use yet
    const FlowInstruction* instruction = flow.at(address);
    for (int step = 0; step < kMaxSlide && instruction != nullptr; ++step) {
        if (step > 0 && flow.is_branch_target(instruction->address)) break;
        if (step > 0 && rules.boundaries != nullptr && rules.boundaries->contains(instruction->address)) break;
        const DecodedInstruction decoded = flow.decoded(*instruction);
        std::string reason = decoded.refusal();
        // The kernel's patch of a five-byte nop pushes, which would overwrite a red zone that is in use.
        if (decoded.is_exact_nop5() && !nothing_written) reason = "is a five-byte nop inside of a function";
        if (step == 0 && !reason.empty())
            refusal = fmt::format("({}) {}", decoded.describe(false, kernel).text, reason);
        if (reason.empty()) {
            const Instruction described = decoded.describe(nothing_written, kernel);
            if (!best || described.instruction_class < best->instruction.instruction_class)
                best = ProbePlace{described, stack_growth};
        }
        if (instruction->kind != Kind::kPlain) break;
        const std::optional<std::int32_t> growth = decoded.stack_growth();
        if (!growth || (rules.stack_must_stand && *growth != 0)) break;
        stack_growth += *growth;
        if (stack_growth < 0) break;
        nothing_written = nothing_written && (decoded.is_entry_mark() || decoded.is_padding());
        const FlowInstruction* next = flow.at(instruction->end());
        instruction = next;
    }
    return best;
}

FunctionCode read_function_code(const ControlFlow& flow, const KernelNops& kernel,
                                const std::set<std::uint64_t>& boundaries) {
    FunctionCode code;
    code.problem = flow.problem();
    if (!code.problem.empty()) return code;
    std::string refusal;
    PlaceRules rules{.at_entry = true, .stack_must_stand = false, .boundaries = &boundaries};
    const auto entry = cheapest_place(flow, flow.entry(), rules, kernel, refusal);
    rules.stack_must_stand = true;
    const auto unmoved = cheapest_place(flow, flow.entry(), rules, kernel, refusal);
    if (!entry) {
        code.problem = "its first instruction " + refusal;
        return code;
    }
    code.entry = *entry;
    code.unmoved_entry = unmoved.value_or(ProbePlace{});
    code.runs_past_end = flow.runs_past_end();
    ExitFinder(flow, kernel, code).run();
    return code;
}

}  // namespace hostrange
