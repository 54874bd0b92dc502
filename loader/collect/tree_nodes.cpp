// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/tree_nodes.h"

#include <algorithm>

namespace hostrange {

std::int64_t clamped_ns(std::uint64_t value) {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(value, INT64_MAX));
}

std::int64_t clamped_sum(std::int64_t one, std::int64_t other) {
    std::int64_t sum;
    if (!__builtin_add_overflow(one, other, &sum)) return sum;
    return other > 0 ? INT64_MAX : INT64_MIN;
}

std::int64_t clamped_difference(std::int64_t one, std::int64_t other) {
    std::int64_t difference;
    if (!__builtin_sub_overflow(one, other, &difference)) return difference;
    return other < 0 ? INT64_MAX : INT64_MIN;
}

void TreeNodes::assign(const std::vector<hostrange_scope>& scopes) {
    nodes_.resize(scopes.size());
    by_id_.clear();
    std::uint32_t least = kNone, greatest = 0;
    for (const hostrange_scope& scope : scopes) {
        least = std::min(least, scope.id);
        greatest = std::max(greatest, scope.id);
    }
    first_id_ = least;
    const std::uint64_t span = std::uint64_t{greatest} - least + 1;
    bool by_id = span <= 4 * scopes.size() + 64;
    if (by_id) {
        by_id_.assign(span, kNone);
        for (std::size_t i = 0; i < scopes.size(); ++i) {
            std::uint32_t& place = by_id_[scopes[i].id - first_id_];
            by_id = by_id && place == kNone;
            place = i;
        }
    }
    if (by_id) {
        std::uint32_t count = 0;
        for (std::uint32_t& place : by_id_) {
            if (place == kNone) continue;
            nodes_[count].scope = &scopes[place];
            place = count++;
        }
    } else {
        // A piece of a long tree: its outermost scope has a low number, the others have high ones.
        by_id_.clear();
        for (std::size_t i = 0; i < scopes.size(); ++i) nodes_[i].scope = &scopes[i];
        std::stable_sort(nodes_.begin(), nodes_.end(),
                         [](const Node& one, const Node& other) { return one.scope->id < other.scope->id; });
    }
    for (Node& node : nodes_) node.times = {.raw_ns = clamped_ns(node.scope->duration_ns)};
}

std::uint32_t TreeNodes::find(std::uint32_t id) const {
    if (!by_id_.empty()) return id >= first_id_ && id - first_id_ < by_id_.size() ? by_id_[id - first_id_] : kNone;
    const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), id,
                                        [](const Node& node, std::uint32_t wanted) { return node.scope->id < wanted; });
    return found != nodes_.end() && found->scope->id == id ? found - nodes_.begin() : kNone;
}

void EarlierPieces::correct(TreeNodes& nodes, const Thread& thread, bool is_rest, bool goes_on) {
    if (!is_rest && !by_parent_.empty()) by_parent_.erase(thread);  // of a tree whose rest was lost
    auto* const earlier = is_rest || goes_on ? &by_parent_[thread] : nullptr;

    // From the last one entered to the first: children come before their parents.
    for (std::size_t i = nodes.size(); i-- > 0;) {
        TreeNodes::Node& node = nodes[i];
        const bool is_taken_out = node.range == TreeNodes::kNone;
        Children children;
        if (earlier && is_rest) {
            const auto found = earlier->find(node.scope->id);
            if (found != earlier->end()) {
                children = found->second;
                earlier->erase(found);
            }
        }
        // The children of a scope that is taken out are its parent's.
        if (!is_taken_out) {
            ScopeTimes& times = node.times;
            times.raw_children_ns = clamped_sum(times.raw_children_ns, children.raw_ns);
            times.corrected_children_ns = clamped_sum(times.corrected_children_ns, children.corrected_ns);
            times.inner_probes_ns += children.probes_ns;
            children = {times.raw_ns, times.corrected_ns(), times.inner_probes_ns};
        }
        children.probes_ns += node.times.cost.full_ns;
        if (node.parent != TreeNodes::kNone) {
            ScopeTimes& parent = nodes[node.parent].times;
            parent.raw_children_ns = clamped_sum(parent.raw_children_ns, children.raw_ns);
            parent.corrected_children_ns = clamped_sum(parent.corrected_children_ns, children.corrected_ns);
            parent.inner_probes_ns += children.probes_ns;
        } else if (goes_on) {
            // The nearest scope around it that is not here.
            std::uint32_t id = node.scope->parent;
            for (std::uint32_t around = nodes.find(id); around != TreeNodes::kNone && nodes[around].scope->parent < id;
                 around = nodes.find(id))
                id = nodes[around].scope->parent;
            if (id == 0) continue;
            Children& waiting = (*earlier)[id];
            waiting.raw_ns = clamped_sum(waiting.raw_ns, children.raw_ns);
            waiting.corrected_ns = clamped_sum(waiting.corrected_ns, children.corrected_ns);
            waiting.probes_ns += children.probes_ns;
        }
    }
    if (earlier && !goes_on) by_parent_.erase(thread);
}

}  // namespace hostrange
