// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loader/collect/call_tree.h"
#include "loader/collect/sample_set.h"

namespace hostrange {

// What the collector must know of a range.
struct RangeTraits {
    std::string name;
    bool cold = false;                       // its presence makes a tree cold
    std::vector<std::uint32_t> not_inside;   // range numbers
};

// What the collector must know of an entry site.
struct SiteTraits {
    std::uint32_t range = 0;
    std::string operator_name, backend, implementation;  // labels; empty where the symbol says nothing
};

enum class Phase : std::uint8_t { kCold, kWarm };
std::string_view phase_name(Phase phase);  // "cold", "warm"

// What a row of the report is about.
struct RowKey {
    ProcessKey process;
    std::string operator_name, backend, implementation;
    Phase phase = Phase::kWarm;
    std::uint32_t range = 0;
    auto operator<=>(const RowKey&) const = default;
};

struct RowSamples {
    explicit RowSamples(SampleBudget* budget) : inclusive(budget), self(budget) {}
    SampleSet inclusive, self;     // scopes that ended by an exit
    std::uint64_t unwound = 0;     // scopes that ended by exception or were abandoned: not in the samples
    std::set<std::uint32_t> threads;
};

// Totals over everything that was added.
struct CollectionTotals {
    std::uint64_t trees = 0;
    std::uint64_t unfinished_trees = 0;
    std::uint64_t scopes = 0;          // ended by an exit, counted in a row
    std::uint64_t unwound = 0;
    std::uint64_t outside_condition = 0;  // scopes that a not_inside condition took out
};

// Call trees -> phases and labels -> samples by row.
//
// Phase: cold if the tree contains a scope of a cold range, else warm.
// Label of a scope: its own; else that of the nearest enclosing scope that has it; else the one value that the scopes of
// its tree have, if there is exactly one; else empty.
// Self time: inclusive minus the inclusive time of direct children (unwound children included).
// A scope whose range may not be inside an enclosing one's is taken out; its children become its parent's.
class Collector {
public:
    Collector(std::vector<RangeTraits> ranges, std::size_t sample_memory_bytes);
    ~Collector();

    // Sites are numbered in the order in which they are added.
    void add_site(SiteTraits site);
    void add_tree(const CallTree& tree);

    const std::vector<RangeTraits>& ranges() const;
    const std::map<RowKey, RowSamples>& rows() const;
    const CollectionTotals& totals() const;
    const SampleBudget& budget() const;

private:
    struct Contents;
    std::unique_ptr<Contents> contents_;
};

}  // namespace hostrange
