// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/hostrange.h"
#include "loader/collect/probe_cost.h"

namespace hostrange {

// Times that no clock gives stay where arithmetic is defined.
std::int64_t clamped_ns(std::uint64_t value);
std::int64_t clamped_sum(std::int64_t one, std::int64_t other);
std::int64_t clamped_difference(std::int64_t one, std::int64_t other);

// The times of a scope, in ns.
struct ScopeTimes {
    std::int64_t raw_ns = 0;  // inclusive, as measured
    std::int64_t raw_children_ns = 0;
    std::int64_t corrected_children_ns = 0;
    std::int64_t inner_probes_ns = 0;  // full cost of all scopes nested in it
    ProbeCost cost = {};               // of its own probes

    std::int64_t raw_self_ns() const { return clamped_difference(raw_ns, raw_children_ns); }
    std::int64_t corrected_ns() const { return raw_ns - cost.bias_ns - inner_probes_ns; }
    std::int64_t corrected_self_ns() const { return clamped_difference(corrected_ns(), corrected_children_ns); }
};

// The scopes of one tree, in order of entry: parents stand before their children.
class TreeNodes {
public:
    static constexpr std::uint32_t kNone = UINT32_MAX;
    using Labels = std::array<std::uint32_t, 3>;  // operator, backend, implementation, as numbers; 0: empty

    struct Node {
        const hostrange_scope* scope;
        std::uint32_t parent;  // index of the nearest enclosing scope that is not taken out, or kNone
        std::uint32_t depth;
        std::uint32_t range;  // kNone: taken out
        std::uint32_t call;   // number within the tree
        bool is_marker;
        Labels labels;
        ScopeTimes times;
    };

    // Gives each scope a node, with its raw time; the rest is the caller's. The scopes must outlive the nodes.
    void assign(const std::vector<hostrange_scope>& scopes);

    std::uint32_t find(std::uint32_t id) const;  // the index of the scope of this number, or kNone

    std::size_t size() const { return nodes_.size(); }
    Node& operator[](std::size_t index) { return nodes_[index]; }
    const Node& operator[](std::size_t index) const { return nodes_[index]; }
    auto begin() { return nodes_.begin(); }
    auto end() { return nodes_.end(); }

private:
    std::vector<Node> nodes_;
    std::vector<std::uint32_t> by_id_;  // index: id - first_id_; empty if ids are too sparse or not unique
    std::uint32_t first_id_ = 0;
};

// Fills in the times of nested scopes, also of trees that come in pieces: a parent ends, and so arrives, after its
// children, and what these took must be known when it comes.
class EarlierPieces {
public:
    using Thread = std::pair<std::uint32_t, std::uint32_t>;  // of a process, by number

    // The nodes have their raw times, costs, ranges and parents. is_rest: earlier pieces of the tree have been here;
    // goes_on: more of them are to come.
    void correct(TreeNodes& nodes, const Thread& thread, bool is_rest, bool goes_on);

private:
    struct Children {
        std::int64_t raw_ns = 0, corrected_ns = 0, probes_ns = 0;
    };
    std::map<Thread, std::unordered_map<std::uint32_t, Children>> by_parent_;  // by the parent's number in the tree
};

}  // namespace hostrange
