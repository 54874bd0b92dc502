// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/collect/call_tree.h"
#include "loader/collect/mark_log.h"
#include "loader/collect/probe_cost.h"
#include "loader/collect/sample_set.h"

namespace hostrange {

// What the collector must know of a range.
struct RangeTraits {
    std::string name;
    bool cold = false;                       // its presence makes a tree cold
    std::vector<std::uint32_t> not_inside;   // range numbers: none of them may be around a scope
    std::vector<std::uint32_t> inside = {};  // range numbers: one of them must be around it; empty: no condition
};

// What the collector must know of an entry site.
struct SiteTraits {
    std::uint32_t range = 0;
    std::string operator_name, backend, implementation;  // labels; empty where the symbol says nothing
    ProbeCost cost = {};                                 // of the scopes that it opens
};

// What a row of the report is about.
struct RowKey {
    std::uint32_t test_case = MarkLog::kNoCase;
    ProcessKey process;
    std::string operator_name, backend, implementation;
    Phase phase = Phase::kWarm;
    std::uint32_t range = 0;
    bool outside_phases = false;  // no marker gave the phase: the calls themselves did
    auto operator<=>(const RowKey&) const = default;
};

// Threads of one process, numbered from 0 in the order in which they were first seen.
class ThreadSet {
public:
    void insert(std::uint32_t number) {
        const std::size_t word = number / 64;
        if (word >= words_.size()) words_.resize(word + 1);
        words_[word] |= std::uint64_t{1} << (number % 64);
    }
    void insert_all(const ThreadSet& other) {
        if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
        for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
    }
    std::size_t size() const {
        std::size_t count = 0;
        for (const std::uint64_t word : words_) count += std::popcount(word);
        return count;
    }

private:
    std::vector<std::uint64_t> words_;
};

struct RowSamples {
    static constexpr std::uint32_t kNoRange = UINT32_MAX;

    explicit RowSamples(SampleBudget* budget)
        : inclusive(budget), self(budget), corrected_inclusive(budget), corrected_self(budget) {}
    SampleSet inclusive, self;                      // scopes that ended by an exit; raw
    SampleSet corrected_inclusive, corrected_self;  // the same, without what the probes cost; empty if none is known
    std::uint64_t unwound = 0;  // scopes that ended by exception or were abandoned: not in the samples
    std::uint64_t calls = 0;    // scopes, unwound ones too, that lie in no other of the same labels
    ThreadSet threads;
    // How deep its scopes lie: the least number of scopes around one, and the range of the nearest of these.
    std::uint32_t depth = UINT32_MAX;
    std::uint32_t enclosing_range = kNoRange;
};

// Totals over everything that was added. All scopes of all trees: scopes + unwound + outside_condition + unknown_site.
struct CollectionTotals {
    std::uint64_t trees = 0;
    std::uint64_t unfinished_trees = 0;
    std::uint64_t scopes = 0;             // ended by an exit, counted in a row
    std::uint64_t unwound = 0;            // counted in a row
    std::uint64_t outside_condition = 0;  // scopes that a condition (inside, not_inside) took out
    std::map<std::uint32_t, std::uint64_t> uncertain_conditions;  // by range: scopes whose condition hangs on scopes
                                                                  // that were abandoned, so that it may not have held
    std::uint64_t unknown_site = 0;  // scopes whose site nobody added, or added with a range that is none: a defect
};

// Call trees and marks -> cases, phases and labels -> samples by row.
//
// A call is an outermost scope of a range of the map, with what is nested in it: a whole tree, unless ranges of markers
// lie around it. It belongs to the case and phase that were in force in its process when it began. Where no marker gave
// a phase, it is cold if it contains a scope of a cold range or is the first of its operator in a run of its case, else
// warm. Scopes of markers around calls are cold if all these are.
// Label of a scope: its own; else that of the nearest enclosing scope that has it; else the one value that the scopes
// of its call have (for markers around calls: of the tree), if there is exactly one; else that of the case. Self time:
// inclusive minus the inclusive time of direct children (unwound children included). Children that overlap (fibers) can
// make it negative; it stays so. A scope whose range may not be inside an enclosing one's is taken out, as if it had
// not been probed: its children become its parent's, and it counts for neither phase nor labels nor conditions. A scope
// whose parent is not in the tree is an outermost one. A scope that is ended late stops being unwound; what was entered
// in it after it had been taken for dead is not among its children.
// Corrected inclusive time: what is left of the raw one without the bias of the scope's own probes and the full cost of
// all scopes nested in it, those too that were taken out, or unwound (as if their exit had been hit). Corrected self
// time: corrected inclusive minus that of direct children. So the corrected self times of a tree add up to the
// corrected inclusive time of its outermost scope, exactly.
class Collector {
public:
    // corrects: the sites' costs are known.
    Collector(std::vector<RangeTraits> ranges, std::size_t sample_memory_bytes, bool corrects = false);
    ~Collector();

    // Sites are numbered in the order in which they are added.
    void add_site(SiteTraits site);
    void add_tree(const CallTree& tree);
    // A record of the ring `marks`; before the trees that were committed after it.
    void add_mark(std::span<const std::byte> record);

    // Those of the map, then those of markers.
    const std::vector<RangeTraits>& ranges() const;
    const MarkLog& marks() const;
    // In the order of their keys. Valid until the next add_tree().
    std::vector<std::pair<RowKey, const RowSamples*>> rows() const;
    bool corrects() const;
    const CollectionTotals& totals() const;
    const SampleBudget& budget() const;

private:
    struct Contents;
    std::unique_ptr<Contents> contents_;
};

}  // namespace hostrange
