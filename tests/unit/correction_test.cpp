// SPDX-License-Identifier: Apache-2.0
// Trees whose true times are known, measured by probes whose cost is known, must come back as they were.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "loader/collect/statistics.h"

namespace hostrange {
namespace {

constexpr std::size_t kMemory = 64 << 20;
constexpr std::uint32_t kRanges = 5;

const std::vector<ProbeCost> kCosts = {{310, 1180}, {5200, 24000}, {0, 0}, {17, 18}, {18900, 37111}};

std::vector<RangeTraits> ranges(std::vector<std::uint32_t> last_is_not_inside = {}) {
    std::vector<RangeTraits> result;
    for (std::uint32_t i = 0; i < kRanges; ++i) result.push_back({.name = std::to_string(i), .not_inside = {}});
    result.back().not_inside = std::move(last_is_not_inside);
    return result;
}

struct Truth {
    SampleSet inclusive, self;
};

// One random tree: what truly happened, and what probes see of it.
class RandomTree {
public:
    explicit RandomTree(std::mt19937_64& random) : random_(random) { grow(0, 0); }

    CallTree seen() const {
        CallTree tree;
        tree.process = {1, 1};
        tree.thread_id = 1;
        tree.scopes = scopes_;
        return tree;
    }
    void add_to(std::map<std::uint32_t, Truth>& truth) const {
        for (const auto& [site, inclusive_ns, self_ns] : true_times_) {
            truth[site].inclusive.add(inclusive_ns);
            truth[site].self.add(self_ns);
        }
    }
    std::int64_t root_ns() const { return std::get<1>(true_times_.back()); }

private:
    struct Grown {
        std::int64_t true_ns, seen_ns, probes_ns;  // probes: of itself and all in it
    };

    Grown grow(std::uint32_t parent, int depth) {
        const std::uint32_t id = ++last_id_, site = random_() % kRanges;
        const std::int64_t self_ns = random_() % 100 == 0 ? random_() % 1'000'000'000 : random_() % 2000;
        Grown mine{self_ns, self_ns, 0};
        const unsigned children = depth > 6 ? 0 : random_() % (depth == 0 ? 6 : 3);
        for (unsigned i = 0; i < children; ++i) {
            const Grown child = grow(id, depth + 1);
            mine.true_ns += child.true_ns;
            // The parent's clock sees the child's true time and all that probes cost in it.
            mine.probes_ns += child.probes_ns;
        }
        mine.seen_ns = mine.true_ns + mine.probes_ns + kCosts[site].bias_ns;
        mine.probes_ns += kCosts[site].full_ns;
        scopes_.push_back({.site = site,
                           .id = id,
                           .parent = parent,
                           .ending = HOSTRANGE_ENDED_BY_EXIT,
                           .start_ns = 0,
                           .duration_ns = static_cast<std::uint64_t>(mine.seen_ns)});
        true_times_.emplace_back(site, mine.true_ns, self_ns);
        return mine;
    }

    std::mt19937_64& random_;
    std::uint32_t last_id_ = 0;
    std::vector<hostrange_scope> scopes_;
    std::vector<std::tuple<std::uint32_t, std::int64_t, std::int64_t>> true_times_;
};

void add_sites(Collector& collector) {
    for (std::uint32_t i = 0; i < kRanges; ++i) collector.add_site({i, "", "", "", kCosts[i]});
}

void expect_same(const SampleSet& one, const SampleSet& other) {
    EXPECT_EQ(one.count(), other.count());
    EXPECT_EQ(one.sum(), other.sum());
    EXPECT_EQ(one.minimum(), other.minimum());
    EXPECT_EQ(one.maximum(), other.maximum());
    EXPECT_EQ(one.mean(), other.mean());
    EXPECT_EQ(one.median(), other.median());
    for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0}) EXPECT_EQ(one.quantile(share), other.quantile(share));
}

TEST(Correction, GivesBackWhatTrulyHappened) {
    std::mt19937_64 random(20261204);
    Collector collector(ranges(), kMemory, true);
    add_sites(collector);
    std::map<std::uint32_t, Truth> truth;
    for (int i = 0; i < 3000; ++i) {
        const RandomTree tree(random);
        collector.add_tree(tree.seen());
        tree.add_to(truth);
    }
    const auto rows = collector.rows();
    ASSERT_EQ(rows.size(), kRanges);
    for (const auto& [key, samples] : rows) {
        expect_same(samples->corrected_inclusive, truth[key.range].inclusive);
        expect_same(samples->corrected_self, truth[key.range].self);
        EXPECT_EQ(samples->inclusive.count(), truth[key.range].inclusive.count());
    }
}

TEST(Correction, SelfTimesOfATreeAddUpToItsOutermostScopeExactly) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 500; ++i) {
        Collector collector(ranges(), kMemory, true);
        add_sites(collector);
        const RandomTree tree(random);
        CallTree seen = tree.seen();
        // Whatever was measured, and whatever the probes are said to cost.
        for (hostrange_scope& scope : seen.scopes) scope.duration_ns = random() % 50'000;
        collector.add_tree(seen);
        Wide self_ns = 0;
        for (const auto& [key, samples] : collector.rows()) self_ns += samples->corrected_self.sum();
        Wide root_ns = static_cast<Wide>(seen.scopes.back().duration_ns) - kCosts[seen.scopes.back().site].bias_ns;
        for (std::size_t k = 0; k + 1 < seen.scopes.size(); ++k) root_ns -= kCosts[seen.scopes[k].site].full_ns;
        EXPECT_EQ(self_ns, root_ns);
    }
}

TEST(Correction, TreesInPiecesAreCorrectedAsIfTheyWereWhole) {
    std::mt19937_64 random(11);
    Collector whole(ranges(), kMemory, true), in_pieces(ranges(), kMemory, true);
    add_sites(whole);
    add_sites(in_pieces);
    for (int i = 0; i < 1000; ++i) {
        const CallTree tree = RandomTree(random).seen();
        whole.add_tree(tree);
        for (std::size_t at = 0; at < tree.scopes.size();) {
            const std::size_t end = std::min(tree.scopes.size(), at + 1 + random() % 4);
            CallTree piece = tree;
            piece.scopes.assign(tree.scopes.begin() + at, tree.scopes.begin() + end);
            piece.is_rest = at > 0;
            piece.goes_on = end < tree.scopes.size();
            in_pieces.add_tree(piece);
            at = end;
        }
    }
    const auto one = whole.rows(), other = in_pieces.rows();
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        expect_same(one[i].second->corrected_inclusive, other[i].second->corrected_inclusive);
        expect_same(one[i].second->corrected_self, other[i].second->corrected_self);
        expect_same(one[i].second->self, other[i].second->self);
    }
}

TEST(Correction, AScopeThatIsTakenOutStillCostsWhatItsProbesCost) {
    Collector collector(ranges({0}), kMemory, true);
    add_sites(collector);
    // Range 4 inside of range 0 is taken out; what range 3 in it took is a child of range 0.
    CallTree tree;
    tree.process = {1, 1};
    tree.scopes = {
        {.site = 3, .id = 3, .parent = 2, .ending = 0, .start_ns = 0, .duration_ns = 100 + 17},
        {.site = 4, .id = 2, .parent = 1, .ending = 0, .start_ns = 0, .duration_ns = 500 + 18 + 18900},
        {.site = 0, .id = 1, .parent = 0, .ending = 0, .start_ns = 0, .duration_ns = 900 + 18 + 37111 + 310}};
    collector.add_tree(tree);
    for (const auto& [key, samples] : collector.rows()) {
        EXPECT_EQ(samples->corrected_inclusive.median(), key.range == 0 ? 900 : 100);
        EXPECT_EQ(samples->corrected_self.median(), key.range == 0 ? 800 : 100);
    }
    EXPECT_EQ(collector.totals().outside_condition, 1u);
}

TEST(Correction, WithoutKnownCostsThereIsNone) {
    Collector collector(ranges(), kMemory);
    add_sites(collector);
    std::mt19937_64 random(3);
    collector.add_tree(RandomTree(random).seen());
    for (const auto& [key, samples] : collector.rows()) {
        EXPECT_EQ(samples->corrected_inclusive.count(), 0u);
        EXPECT_GT(samples->inclusive.count(), 0u);
    }
    EXPECT_FALSE(collector.corrects());
}

}  // namespace
}  // namespace hostrange
