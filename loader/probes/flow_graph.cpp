// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/flow_graph.h"

#include <algorithm>

namespace hostrange {

namespace {

constexpr int kMaxStraight = 256;  // instructions

using Kind = FlowInstruction::Kind;

}  // namespace

FlowGraph::FlowGraph(const WholeFunction& function) : flow_(function.flow) {
    if (!flow_.problem().empty()) return;  // it has not even an entry
    for (const LandingPad& pad : function.landing_pads) landings_.insert(pad.address);
    for (const FlowInstruction& instruction : flow_.instructions())
        for (const std::uint64_t successor : successors(instruction))
            predecessors_[successor].push_back(instruction.address);
    starts_.push_back(flow_.entry());
    for (const FlowInstruction& instruction : flow_.instructions())
        if (!predecessors_.contains(instruction.address) && !landings_.contains(instruction.address) &&
            flow_.is_branch_target(instruction.address))
            starts_.push_back(instruction.address);
    std::sort(starts_.begin(), starts_.end());
    normal_ = reached_around([](std::uint64_t) { return false; });
}

std::vector<std::uint64_t> FlowGraph::successors(const FlowInstruction& instruction) const {
    std::vector<std::uint64_t> result;
    // Behind a call that never returns, code may follow where exceptions land. Nothing else gets there by itself.
    const bool is_last = instruction.kind == Kind::kCall && landings_.contains(instruction.end());
    if (instruction.goes_on() && !is_last) result.push_back(instruction.end());
    if (instruction.target != 0) result.push_back(instruction.target);
    return result;
}

bool FlowGraph::is_entered(std::uint64_t address, const Inside& inside) const {
    if (std::binary_search(starts_.begin(), starts_.end(), address)) return true;
    const auto found = predecessors_.find(address);
    return found != predecessors_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                       [&](std::uint64_t predecessor) { return !inside(predecessor); });
}

bool FlowGraph::is_entered_normally(std::uint64_t address, const Inside& inside) const {
    return is_entered(address, [&](std::uint64_t predecessor) {
        return inside(predecessor) || !runs_without_exception(predecessor);
    });
}

std::set<std::uint64_t> FlowGraph::reached(const std::vector<std::uint64_t>& starts, const Inside& inside) const {
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> pending;
    const auto visit = [&](std::uint64_t address) {
        if (flow_.at(address) != nullptr && inside(address) && seen.insert(address).second) pending.push_back(address);
    };
    for (const std::uint64_t start : starts) visit(start);
    while (!pending.empty()) {
        const FlowInstruction& instruction = *flow_.at(pending.back());
        pending.pop_back();
        for (const std::uint64_t successor : successors(instruction)) visit(successor);
    }
    return seen;
}

std::set<std::uint64_t> FlowGraph::reached_around(const Inside& inside) const {
    return reached(starts_, [&](std::uint64_t address) { return !inside(address); });
}

bool FlowGraph::is_on_loop(std::uint64_t address, const Inside& inside) const {
    return reached(successors(*flow_.at(address)), inside).contains(address);
}

bool FlowGraph::leads_straight(std::uint64_t from, const std::vector<std::uint64_t>& to) const {
    const FlowInstruction* instruction = flow_.at(from);
    for (int step = 0; step < kMaxStraight && instruction != nullptr; ++step) {
        if (std::binary_search(to.begin(), to.end(), instruction->address)) return true;
        if (instruction->kind == Kind::kConditionalJump) return false;
        const std::vector<std::uint64_t> next = successors(*instruction);
        if (next.size() != 1) return false;
        instruction = flow_.at(next.front());
    }
    return false;
}

}  // namespace hostrange
