// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "loader/collect/unwound_scopes.h"

namespace hostrange {
namespace {

constexpr std::size_t kMemory = 64 << 20;

RangeTraits range(std::string name, std::vector<std::uint32_t> not_inside = {}, bool cold = false) {
    return {.name = std::move(name), .cold = cold, .not_inside = std::move(not_inside)};
}

hostrange_scope scope(std::uint32_t site, std::uint32_t id, std::uint32_t parent, std::uint64_t duration_ns,
                      std::uint32_t ending = HOSTRANGE_ENDED_BY_EXIT) {
    return {.site = site, .id = id, .parent = parent, .ending = ending, .start_ns = 0, .duration_ns = duration_ns};
}

CallTree tree_of(std::vector<hostrange_scope> scopes, ProcessKey process = {1, 1}, std::uint32_t thread_id = 1) {
    CallTree tree;
    tree.process = process;
    tree.thread_id = thread_id;
    tree.scopes = std::move(scopes);
    return tree;
}

// The row of a range; there must be exactly one.
std::pair<RowKey, const RowSamples*> row_of(const Collector& collector, std::uint32_t range_number) {
    std::pair<RowKey, const RowSamples*> result{{}, nullptr};
    for (const auto& row : collector.rows()) {
        if (row.first.range != range_number) continue;
        EXPECT_EQ(result.second, nullptr) << "several rows of range " << range_number;
        result = row;
    }
    EXPECT_NE(result.second, nullptr) << "no row of range " << range_number;
    return result;
}

// Ranges outer, inner, leaf; a site each.
class Nested : public testing::Test {
protected:
    Nested() : collector_({range("outer"), range("inner"), range("leaf")}, kMemory) {
        for (std::uint32_t i = 0; i < 3; ++i) collector_.add_site({i, "", "", ""});
    }
    Collector collector_;
};

TEST_F(Nested, SelfIsInclusiveLessDirectChildren) {
    collector_.add_tree(tree_of({scope(2, 3, 2, 10), scope(2, 4, 2, 20), scope(1, 2, 1, 50), scope(0, 1, 0, 100)}));
    EXPECT_EQ(row_of(collector_, 0).second->self.median(), 50);
    EXPECT_EQ(row_of(collector_, 1).second->self.median(), 20);
    EXPECT_EQ(row_of(collector_, 2).second->self.sum(), 30);
    EXPECT_EQ(row_of(collector_, 2).second->inclusive.count(), 2u);
    EXPECT_EQ(row_of(collector_, 2).second->depth, 2u);
    EXPECT_EQ(row_of(collector_, 2).second->enclosing_range, 1u);
    EXPECT_EQ(row_of(collector_, 0).second->depth, 0u);
    EXPECT_EQ(row_of(collector_, 0).second->enclosing_range, RowSamples::kNoRange);
}

TEST_F(Nested, RecursionCountsEachLevel) {
    collector_.add_tree(tree_of({scope(0, 3, 2, 10), scope(0, 2, 1, 30), scope(0, 1, 0, 100)}));
    const RowSamples& row = *row_of(collector_, 0).second;
    EXPECT_EQ(row.inclusive.count(), 3u);
    EXPECT_EQ(row.inclusive.sum(), 140);
    EXPECT_EQ(row.self.sum(), 100);
}

TEST_F(Nested, UnwoundScopesReduceTheirParentOnly) {
    collector_.add_tree(tree_of({scope(2, 3, 2, 10, HOSTRANGE_ENDED_BY_EXCEPTION),
                                 scope(1, 2, 1, 50, HOSTRANGE_ENDED_ABANDONED), scope(0, 1, 0, 100)}));
    EXPECT_EQ(row_of(collector_, 0).second->self.median(), 50);
    EXPECT_EQ(row_of(collector_, 1).second->inclusive.count(), 0u);
    EXPECT_EQ(row_of(collector_, 1).second->unwound, 1u);
    EXPECT_EQ(row_of(collector_, 2).second->unwound, 1u);
    EXPECT_EQ(collector_.totals().scopes, 1u);
    EXPECT_EQ(collector_.totals().unwound, 2u);
}

TEST_F(Nested, CallsAreScopesThatLieInNoOther) {
    collector_.add_tree(tree_of({scope(0, 3, 2, 10), scope(1, 2, 1, 30), scope(0, 1, 0, 100)}));
    collector_.add_tree(tree_of({scope(1, 1, 0, 30)}));
    collector_.add_tree(tree_of({scope(0, 1, 0, 50, HOSTRANGE_ENDED_BY_EXCEPTION)}));
    EXPECT_EQ(row_of(collector_, 0).second->calls, 2u);
    EXPECT_EQ(row_of(collector_, 1).second->calls, 1u);
}

TEST(Collector, AScopeOfOtherLabelsIsACallOfTheirs) {
    Collector collector({range("outer"), range("inner")}, kMemory);
    collector.add_site({0, "gemm", "", ""});
    collector.add_site({1, "add", "", ""});
    collector.add_site({1, "", "", ""});
    collector.add_tree(tree_of({scope(1, 2, 1, 10), scope(2, 3, 1, 10), scope(0, 1, 0, 100)}));
    std::map<std::string, std::uint64_t> calls;
    for (const auto& [key, samples] : collector.rows()) calls[key.operator_name] += samples->calls;
    EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"add", 1}, {"gemm", 1}}));
}

TEST_F(Nested, ALateEndMakesAnUnwoundScopeGood) {
    hostrange_scope unwound = scope(1, 2, 1, 50, HOSTRANGE_ENDED_ABANDONED);
    unwound.start_ns = 7;
    collector_.add_tree(tree_of({scope(2, 3, 2, 10), unwound, scope(0, 1, 0, 100)}));
    hostrange_scope late = scope(1, 1, 0, 500, HOSTRANGE_ENDED_LATE);
    late.start_ns = 7;
    collector_.add_tree(tree_of({late}));
    const RowSamples& row = *row_of(collector_, 1).second;
    EXPECT_EQ(row.unwound, 0u);
    EXPECT_EQ(row.inclusive.sum(), 500);
    EXPECT_EQ(row.self.sum(), 490);
    EXPECT_EQ(row.depth, 1u);
    EXPECT_EQ(collector_.totals().trees, 1u);
    EXPECT_EQ(collector_.totals().scopes, 3u);
    EXPECT_EQ(collector_.totals().unwound, 0u);
}

TEST_F(Nested, ALateEndOfAnUnknownScopeIsATreeOfItsOwn) {
    hostrange_scope unwound = scope(1, 2, 1, 50, HOSTRANGE_ENDED_ABANDONED), late = unwound;
    late.ending = HOSTRANGE_ENDED_LATE;
    late.start_ns = 7;
    collector_.add_tree(tree_of({unwound, scope(0, 1, 0, 100)}));
    collector_.add_tree(tree_of({late}));  // another scope
    collector_.add_tree(tree_of({late}));  // the same, once more
    late.start_ns = 0;
    collector_.add_tree(tree_of({late}, {1, 2}));     // another process
    collector_.add_tree(tree_of({late}, {1, 1}, 2));  // another thread
    EXPECT_EQ(collector_.totals().trees, 5u);
    EXPECT_EQ(collector_.totals().scopes, 5u);
    EXPECT_EQ(collector_.totals().unwound, 1u);
}

TEST(Collector, ALateEndOfAScopeThatWasTakenOutCountsNowhere) {
    Collector collector({range("outer"), range("inner", {0})}, kMemory);
    collector.add_site({0, "", "", ""});
    collector.add_site({1, "", "", ""});
    collector.add_tree(tree_of({scope(1, 2, 1, 50, HOSTRANGE_ENDED_ABANDONED), scope(0, 1, 0, 100)}));
    collector.add_tree(tree_of({scope(1, 1, 0, 500, HOSTRANGE_ENDED_LATE)}));
    EXPECT_EQ(collector.totals().outside_condition, 1u);
    EXPECT_EQ(collector.totals().scopes, 1u);
    EXPECT_EQ(collector.rows().size(), 1u);
}

TEST(UnwoundScopes, TheOldestIsForgotten) {
    UnwoundScopes<int> scopes(2);
    for (std::uint64_t start = 0; start < 3; ++start) scopes.add({1, 1, 1, start}, static_cast<int>(start));
    EXPECT_EQ(scopes.take({1, 1, 1, 0}), std::nullopt);
    EXPECT_EQ(scopes.take({1, 1, 1, 2}), 2);
    EXPECT_EQ(scopes.take({1, 1, 1, 2}), std::nullopt);
    scopes.add({1, 1, 1, 3}, 3);
    scopes.add({1, 1, 1, 4}, 4);
    EXPECT_EQ(scopes.take({1, 1, 1, 1}), std::nullopt);
    EXPECT_EQ(scopes.take({1, 1, 1, 3}), 3);
    EXPECT_EQ(scopes.take({1, 1, 1, 4}), 4);
}

TEST_F(Nested, ChildrenMayEndAfterTheirParentAndOverlap) {
    // Two fibers inside the outer scope; the second one outlives it.
    collector_.add_tree(tree_of({scope(1, 2, 1, 80), scope(0, 1, 0, 100), scope(2, 4, 3, 15), scope(1, 3, 1, 90)}));
    EXPECT_EQ(row_of(collector_, 0).second->self.median(), -70);
    EXPECT_EQ(row_of(collector_, 1).second->self.sum(), 80 + 75);
}

TEST_F(Nested, UnknownParentsMakeOutermostScopes) {
    collector_.add_tree(tree_of({scope(2, 7, 6, 15), scope(1, 5, 4, 90)}));
    EXPECT_EQ(row_of(collector_, 1).second->self.median(), 90);
    EXPECT_EQ(row_of(collector_, 1).second->depth, 0u);
    EXPECT_EQ(row_of(collector_, 2).second->depth, 0u);
}

TEST_F(Nested, DefectiveIdsDoNoHarm) {
    const auto any = static_cast<std::uint32_t>(-1);
    collector_.add_tree(tree_of({scope(2, 5, 5, 1), scope(1, 3, 4, 1), scope(1, 4, 3, 1), scope(0, 4, 0, 1),
                                 scope(0, any, 4, 1), scope(0, 0, 0, 1), scope(0, 0, any, UINT64_MAX)}));
    collector_.add_tree(tree_of({scope(3, 2, 1, 10), scope(any, 3, 2, 5), scope(0, 1, 0, UINT64_MAX)}));
    collector_.add_tree(tree_of({}));
    EXPECT_EQ(collector_.totals().unknown_site, 2u);
    EXPECT_EQ(collector_.totals().scopes, 8u);
    EXPECT_EQ(collector_.totals().trees, 3u);
    EXPECT_EQ(row_of(collector_, 0).second->inclusive.maximum(), INT64_MAX);
}

TEST_F(Nested, AnUnknownSitesChildrenBecomeItsParents) {
    collector_.add_tree(tree_of({scope(2, 3, 2, 10), scope(99, 2, 1, 50), scope(0, 1, 0, 100)}));
    EXPECT_EQ(row_of(collector_, 0).second->self.median(), 90);
    EXPECT_EQ(row_of(collector_, 2).second->enclosing_range, 0u);
}

TEST_F(Nested, PiecesOfALongTreeKeepSelfTimes) {
    const auto add = [&](std::vector<hostrange_scope> scopes, bool is_rest, bool goes_on) {
        CallTree piece = tree_of(std::move(scopes));
        piece.is_rest = is_rest;
        piece.goes_on = goes_on;
        collector_.add_tree(piece);
    };
    add({scope(1, 2, 1, 60)}, false, true);
    add({scope(2, 4, 3, 7), scope(1, 5, 1, 3)}, true, true);
    add({scope(1, 3, 1, 10), scope(1, 3'000'000'000, 1, 5), scope(0, 1, 0, 100)}, true, false);
    EXPECT_EQ(row_of(collector_, 0).second->self.sum(), 100 - 60 - 3 - 10 - 5);
    EXPECT_EQ(row_of(collector_, 1).second->self.sum(), 60 + 3 + (10 - 7) + 5);
    // A tree whose rest never came has nothing to do with the next one.
    add({scope(1, 2, 1, 60)}, false, true);
    add({scope(0, 1, 0, 100)}, false, false);
    EXPECT_EQ(row_of(collector_, 0).second->self.maximum(), 100);
}

TEST_F(Nested, ThreadsAndProcessesAreToldApart) {
    for (std::uint32_t thread = 0; thread < 200; ++thread) {
        collector_.add_tree(tree_of({scope(0, 1, 0, 1)}, {1, 1}, thread % 100));
    }
    collector_.add_tree(tree_of({scope(0, 1, 0, 1)}, {1, 2}, 7));  // the pid was used again
    CallTree unfinished = tree_of({scope(0, 2, 1, 1)}, {1, 2}, 7);
    unfinished.unfinished = true;
    collector_.add_tree(unfinished);
    const auto rows = collector_.rows();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].first.process.start_ns, 1u);
    EXPECT_EQ(rows[0].second->threads.size(), 100u);
    EXPECT_EQ(rows[1].second->threads.size(), 1u);
    EXPECT_EQ(rows[1].second->inclusive.count(), 2u);
    EXPECT_EQ(collector_.totals().unfinished_trees, 1u);
}

TEST(Collector, AConditionTakesOutWhatIsInsideAtAnyDepth) {
    Collector collector({range("tensor"), range("device", {0}), range("leaf")}, kMemory);
    for (std::uint32_t i = 0; i < 3; ++i) collector.add_site({i, "", "", ""});
    // tensor { leaf { device { leaf } } }, and device on its own.
    collector.add_tree(tree_of({scope(2, 4, 3, 5), scope(1, 3, 2, 20), scope(2, 2, 1, 50), scope(0, 1, 0, 100)}));
    collector.add_tree(tree_of({scope(1, 1, 0, 7)}));
    EXPECT_EQ(collector.totals().outside_condition, 1u);
    EXPECT_EQ(row_of(collector, 1).second->inclusive.sum(), 7);
    // The inner leaf has become a child of the outer one, which keeps what the device took.
    EXPECT_EQ(row_of(collector, 2).second->self.sum(), 5 + 45);
    EXPECT_EQ(row_of(collector, 0).second->self.sum(), 50);
}

TEST(Collector, AConditionThatHangsOnAnAbandonedScopeIsUncertain) {
    RangeTraits wanting = range("wanting");
    wanting.inside = {0};
    Collector collector({range("outer"), range("forbidding", {0}), wanting}, kMemory);
    for (std::uint32_t i = 0; i < 3; ++i) collector.add_site({i, "", "", ""});
    const auto tree = [](std::uint32_t ending) {
        return tree_of({scope(1, 2, 1, 10), scope(2, 3, 1, 10), scope(0, 1, 0, 100, ending)});
    };
    collector.add_tree(tree(HOSTRANGE_ENDED_BY_EXIT));
    collector.add_tree(tree(HOSTRANGE_ENDED_BY_EXCEPTION));
    EXPECT_TRUE(collector.totals().uncertain_conditions.empty());
    collector.add_tree(tree(HOSTRANGE_ENDED_ABANDONED));
    EXPECT_EQ(collector.totals().uncertain_conditions, (std::map<std::uint32_t, std::uint64_t>{{1, 1}, {2, 1}}));
    EXPECT_EQ(collector.totals().outside_condition, 3u);
    // One around them that ended as it should settles it.
    collector.add_tree(
        tree_of({scope(2, 3, 2, 10), scope(0, 2, 1, 20, HOSTRANGE_ENDED_ABANDONED), scope(0, 1, 0, 100)}));
    EXPECT_EQ(collector.totals().uncertain_conditions.at(2), 1u);
}

TEST(Collector, AColdRangeMakesItsTreeCold) {
    Collector collector({range("call"), range("construct", {}, true)}, kMemory);
    collector.add_site({0, "", "", ""});
    collector.add_site({1, "", "", ""});
    collector.add_tree(tree_of({scope(1, 2, 1, 50, HOSTRANGE_ENDED_BY_EXCEPTION), scope(0, 1, 0, 100)}));
    collector.add_tree(tree_of({scope(0, 1, 0, 10)}));
    const auto rows = collector.rows();
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].first.phase, Phase::kCold);
    EXPECT_EQ(rows[0].second->inclusive.median(), 100);
    EXPECT_EQ(rows[1].first.phase, Phase::kCold);
    EXPECT_EQ(rows[2].first.phase, Phase::kWarm);
    EXPECT_EQ(rows[2].second->inclusive.median(), 10);
}

TEST(Collector, LabelsComeFromTheSiteThenOutsideThenTheTree) {
    Collector collector({range("body"), range("convert"), range("submit")}, kMemory);
    collector.add_site({0, "add", "", ""});
    collector.add_site({1, "", "", ""});
    collector.add_site({2, "", "cpu", "0"});
    collector.add_site({2, "mul", "cpu", "1"});
    collector.add_tree(tree_of({scope(1, 2, 1, 1), scope(2, 3, 1, 1), scope(0, 1, 0, 9)}));
    RowKey key = row_of(collector, 0).first;
    EXPECT_EQ(key.operator_name + key.backend + key.implementation, "addcpu0");  // backend: the tree has one only
    key = row_of(collector, 1).first;
    EXPECT_EQ(key.operator_name + key.backend + key.implementation, "addcpu0");

    Collector several({range("body"), range("convert"), range("submit")}, kMemory);
    several.add_site({0, "", "", ""});
    several.add_site({1, "", "", ""});
    several.add_site({2, "add", "cpu", "0"});
    several.add_site({2, "mul", "cpu", "1"});
    several.add_tree(tree_of({scope(1, 4, 2, 1), scope(2, 2, 1, 1), scope(3, 3, 1, 1), scope(0, 1, 0, 9)}));
    key = row_of(several, 0).first;
    EXPECT_EQ(key.operator_name, "");  // two in the tree, none around
    EXPECT_EQ(key.backend, "cpu");
    EXPECT_EQ(key.implementation, "");
    key = row_of(several, 1).first;
    EXPECT_EQ(key.operator_name, "add");  // from the scope around it
    EXPECT_EQ(key.implementation, "0");
}

// ---- random trees against a plain recursion

struct NaiveRow {
    std::vector<std::int64_t> inclusive, self;
    std::uint64_t unwound = 0;
    std::set<std::uint32_t> threads;
    std::uint32_t depth = UINT32_MAX;
};

struct NaiveNode {
    const hostrange_scope* scope;
    std::uint32_t range;
    std::array<std::string, 3> labels;
    std::vector<NaiveNode*> kept_around;  // nearest last
    std::int64_t children_ns = 0;
};

class Naive {
public:
    Naive(std::vector<RangeTraits> ranges, std::vector<SiteTraits> sites)
        : ranges_(std::move(ranges)), sites_(std::move(sites)) {}

    void add(const CallTree& tree) {
        std::vector<std::unique_ptr<NaiveNode>> kept;
        std::set<std::uint32_t> ids;
        for (const hostrange_scope& one : tree.scopes) ids.insert(one.id);
        const auto visit = [&](const auto& again, const hostrange_scope& one, std::vector<NaiveNode*> around) -> void {
            const SiteTraits& site = sites_[one.site];
            const std::vector<std::uint32_t>& not_inside = ranges_[site.range].not_inside;
            const bool is_out = std::any_of(around.begin(), around.end(), [&](const NaiveNode* outer) {
                return std::count(not_inside.begin(), not_inside.end(), outer->range) > 0;
            });
            if (is_out) {
                ++outside_;
            } else {
                if (!around.empty()) around.back()->children_ns += static_cast<std::int64_t>(one.duration_ns);
                kept.push_back(std::make_unique<NaiveNode>(
                    NaiveNode{&one, site.range, {site.operator_name, site.backend, site.implementation}, around, 0}));
                around.push_back(kept.back().get());
            }
            for (const hostrange_scope& child : tree.scopes) {
                if (child.parent == one.id) again(again, child, around);
            }
        };
        for (const hostrange_scope& one : tree.scopes) {
            if (!ids.count(one.parent)) visit(visit, one, {});
        }
        Phase phase = Phase::kWarm;
        std::array<std::set<std::string>, 3> in_tree;
        for (const auto& node : kept) {
            if (ranges_[node->range].cold) phase = Phase::kCold;
            for (std::size_t i = 0; i < 3; ++i) {
                if (!node->labels[i].empty()) in_tree[i].insert(node->labels[i]);
            }
        }
        for (const auto& node : kept) {
            std::array<std::string, 3> labels = node->labels;
            for (std::size_t i = 0; i < 3; ++i) {
                for (auto outer = node->kept_around.rbegin(); outer != node->kept_around.rend(); ++outer) {
                    if (labels[i].empty()) labels[i] = (*outer)->labels[i];
                }
                if (labels[i].empty() && in_tree[i].size() == 1) labels[i] = *in_tree[i].begin();
            }
            NaiveRow& row = rows_[{.process = tree.process,
                                   .operator_name = labels[0],
                                   .backend = labels[1],
                                   .implementation = labels[2],
                                   .phase = phase,
                                   .range = node->range,
                                   .outside_phases = true}];
            row.threads.insert(tree.thread_id);
            row.depth = std::min<std::uint32_t>(row.depth, node->kept_around.size());
            if (node->scope->ending != HOSTRANGE_ENDED_BY_EXIT) {
                ++row.unwound;
                continue;
            }
            const auto inclusive = static_cast<std::int64_t>(node->scope->duration_ns);
            row.inclusive.push_back(inclusive);
            row.self.push_back(inclusive - node->children_ns);
        }
    }

    std::vector<RangeTraits> ranges_;
    std::vector<SiteTraits> sites_;
    std::map<RowKey, NaiveRow> rows_;
    std::uint64_t outside_ = 0;
};

void expect_same(const SampleSet& set, std::vector<std::int64_t> values) {
    ASSERT_EQ(set.count(), values.size());
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    EXPECT_EQ(set.minimum(), values.front());
    EXPECT_EQ(set.maximum(), values.back());
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(set.quantile((i + 1.0) / values.size()), values[i]);
    }
}

TEST(Collector, AgreesWithAPlainRecursionOnRandomTrees) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 40; ++round) {
        const std::uint32_t range_count = 2 + random() % 6;
        std::vector<RangeTraits> ranges;
        for (std::uint32_t i = 0; i < range_count; ++i) {
            ranges.push_back(range("range" + std::to_string(i), {}, random() % 8 == 0));
            for (int k = random() % 3; k > 0; --k) ranges[i].not_inside.push_back(random() % range_count);
        }
        const auto label = [&](const char* prefix) {
            return random() % 2 ? std::string() : prefix + std::to_string(random() % 3);
        };
        std::vector<SiteTraits> sites;
        for (int i = 0; i < 12; ++i) {
            sites.push_back({static_cast<std::uint32_t>(random() % range_count), label("o"), label("b"), label("i")});
        }
        Collector collector(ranges, kMemory);
        for (const SiteTraits& site : sites) collector.add_site(site);
        Naive naive(ranges, sites);

        std::uint64_t scopes = 0;
        for (int i = 0; i < 100; ++i) {
            CallTree tree = tree_of({}, {static_cast<std::uint32_t>(1 + random() % 2), 1}, random() % 4);
            const std::uint32_t count = 1 + random() % 40;
            // Far-apart ids are those of a piece of a long tree.
            const std::uint32_t stride = random() % 5 == 0 ? 50'000'000 : 1;
            for (std::uint32_t k = 1; k <= count; ++k) {
                const std::uint32_t parent = random() % 10 == 0 ? 0 : random() % k;
                tree.scopes.push_back(scope(random() % sites.size(), k * stride, parent * stride, random() % 1000,
                                            random() % 10 == 0 ? random() % 3 : 0));
            }
            std::shuffle(tree.scopes.begin(), tree.scopes.end(), random);
            if (random() % 4 == 0) tree.scopes.resize(1 + tree.scopes.size() / 2);  // parents that are not there
            scopes += tree.scopes.size();
            collector.add_tree(tree);
            naive.add(tree);
        }

        const auto rows = collector.rows();
        ASSERT_EQ(rows.size(), naive.rows_.size());
        auto expected = naive.rows_.begin();
        for (const auto& [key, samples] : rows) {
            ASSERT_TRUE(key == expected->first);
            expect_same(samples->inclusive, expected->second.inclusive);
            expect_same(samples->self, expected->second.self);
            EXPECT_EQ(samples->unwound, expected->second.unwound);
            EXPECT_EQ(samples->threads.size(), expected->second.threads.size());
            EXPECT_EQ(samples->depth, expected->second.depth);
            ++expected;
        }
        const CollectionTotals& totals = collector.totals();
        EXPECT_EQ(totals.outside_condition, naive.outside_);
        EXPECT_EQ(totals.scopes + totals.unwound + totals.outside_condition + totals.unknown_site, scopes);
    }
}

TEST(Collector, KeepsTheSampleBudget) {
    constexpr std::size_t kLimit = 256 * 1024;
    Collector collector({range("call"), range("inside")}, kLimit);
    for (const char* name : {"add", "mul"}) {
        collector.add_site({0, name, "", ""});
        collector.add_site({1, name, "", ""});
    }
    std::mt19937_64 random(12);
    for (int i = 0; i < 200'000; ++i) {
        const std::uint32_t site = random() % 2 * 2;
        collector.add_tree(
            tree_of({scope(site + 1, 2, 1, random() % 100'000), scope(site, 1, 0, random() % 1'000'000)}));
    }
    EXPECT_GT(collector.budget().coarse_sets, 0u);
    EXPECT_LE(collector.budget().used_bytes, kLimit);
    std::size_t used = 0;
    for (const auto& [key, samples] : collector.rows()) {
        used += samples->inclusive.memory_bytes() + samples->self.memory_bytes();
        EXPECT_NEAR(samples->inclusive.mean(), key.range == 0 ? 500'000 : 50'000, 5'000);
    }
    EXPECT_EQ(used, collector.budget().used_bytes);
}

}  // namespace
}  // namespace hostrange
