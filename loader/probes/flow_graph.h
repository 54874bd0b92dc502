// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <vector>

#include "loader/probes/function_parts.h"

namespace hostrange {

// Which instructions of a function lead where. Exceptions are no edges: what only they lead to is reached without them
// from nowhere. Valid as long as the function.
class FlowGraph {
public:
    using Inside = std::function<bool(std::uint64_t address)>;

    // A function whose code could not be understood has no instructions.
    explicit FlowGraph(const WholeFunction& function);

    std::vector<std::uint64_t> successors(const FlowInstruction& instruction) const;

    // Whether something leads there that is not inside: other code, a table, or the function's caller.
    bool is_entered(std::uint64_t address, const Inside& inside) const;

    // As is_entered(), by what runs without an exception.
    bool is_entered_normally(std::uint64_t address, const Inside& inside) const;

    bool runs_without_exception(std::uint64_t address) const { return normal_.contains(address); }

    // What the instructions at `starts` lead to without leaving the inside, themselves included where they lie in it.
    std::set<std::uint64_t> reached(const std::vector<std::uint64_t>& starts, const Inside& inside) const;

    // What runs without an exception and without passing the inside.
    std::set<std::uint64_t> reached_around(const Inside& inside) const;

    // Whether the instruction runs again after itself without leaving the inside.
    bool is_on_loop(std::uint64_t address, const Inside& inside) const;

    // Whether one of `to` (sorted) is what runs after `from`, or is it, without a branch.
    bool leads_straight(std::uint64_t from, const std::vector<std::uint64_t>& to) const;

private:
    const ControlFlow& flow_;
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> predecessors_;
    std::set<std::uint64_t> landings_;   // where exceptions land
    std::vector<std::uint64_t> starts_;  // the entry, and what tables lead to
    std::set<std::uint64_t> normal_;     // what runs without an exception
};

}  // namespace hostrange
