// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/hostrange.h"

namespace hostrange {

// A process, told apart from earlier ones with the same pid.
struct ProcessKey {
    std::uint32_t process_id = 0;
    std::uint64_t start_ns = 0;  // boot-time clock
    auto operator<=>(const ProcessKey&) const = default;
};

// An outermost scope with all scopes nested in it, in order of ending: children stand before their parent.
struct CallTree {
    ProcessKey process;
    std::uint32_t thread_id = 0;
    std::string comm;         // of the process
    bool unfinished = false;  // its outermost scope had not ended when it was cut
    std::vector<hostrange_scope> scopes;
    // Of a tree that is handed on in pieces: some came before this one, some follow.
    bool is_rest = false, goes_on = false;
};

// What could not become a call tree.
struct AssemblyLosses {
    std::uint64_t malformed_records = 0;
    std::uint64_t broken_trees = 0;        // a part was lost, so the tree was dropped whole
    std::uint64_t broken_tree_scopes = 0;  // scopes of theirs that had arrived, ended by an exit
    std::uint64_t split_trees = 0;         // longer than kMaxTreeScopes: handed on in pieces
};

// Puts the parts of trees together.
class TreeAssembler {
public:
    // A tree longer than this (32 MiB) is handed on in pieces, each with its own phase; all but the last are
    // unfinished.
    static constexpr std::size_t kMaxTreeScopes = 1u << 20;

    explicit TreeAssembler(std::size_t max_tree_scopes = kMaxTreeScopes) : max_tree_scopes_(max_tree_scopes) {}

    // Takes one ring-buffer record; gives the tree that it completes, if any. The result is valid until the next call.
    const CallTree* add(std::span<const std::byte> record);

    const AssemblyLosses& losses() const { return losses_; }

    // Scopes (ended by an exit) that wait for the rest of their tree. They count as lost if no more is to come.
    std::uint64_t pending_scopes() const;

private:
    struct Pending {
        CallTree tree;
        std::uint64_t number = 0;
        std::uint32_t next_part = 0;
        bool broken = false;  // counted already; what still arrives of it is dropped
        bool split = false;
        // Where in the tree unwound scopes are, by site and start: they may be ended late.
        std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> unwound;
    };

    const CallTree* whole_tree(const hostrange_tree_header& header, std::span<const std::byte> record);
    bool end_late(const CallTree& late);
    void drop(Pending& pending);
    void hand_on_piece(Pending& pending);

    const std::size_t max_tree_scopes_;
    std::unordered_map<std::uint32_t, Pending> pending_;  // by thread id
    CallTree current_;
    AssemblyLosses losses_;
};

}  // namespace hostrange
