// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/sample_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace hostrange {
namespace {

using Values = std::vector<std::int64_t>;

SampleSet set_of(const Values& values, SampleBudget* budget = nullptr) {
    SampleSet set(budget);
    for (const std::int64_t value : values) set.add(value);
    return set;
}

double naive_median(Values values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    if (values.size() % 2 == 1) return static_cast<double>(values[half]);
    return static_cast<double>((static_cast<Wide>(values[half - 1]) + values[half])) / 2;
}

// The smallest value with at least `percent` of a hundred of the values at or below it.
double percentile_of_sorted(const Values& values, std::size_t percent) {
    const std::size_t rank = std::max<std::size_t>(1, (values.size() * percent + 99) / 100);
    return static_cast<double>(values[rank - 1]);
}

double naive_percentile(Values values, std::size_t percent) {
    std::sort(values.begin(), values.end());
    return percentile_of_sorted(values, percent);
}

double naive_deviation(const Values& values) {
    long double mean = 0, squares = 0;
    for (const std::int64_t value : values) mean += static_cast<long double>(value) / values.size();
    for (const std::int64_t value : values) squares += (value - mean) * (value - mean);
    return static_cast<double>(std::sqrt(squares / values.size()));
}

Wide naive_sum(const Values& values) {
    Wide sum = 0;
    for (const std::int64_t value : values) sum += value;
    return sum;
}

void expect_same(const SampleSet& set, const Values& values) {
    ASSERT_EQ(set.count(), values.size());
    EXPECT_TRUE(set.is_exact());
    EXPECT_TRUE(set.sum() == naive_sum(values));
    EXPECT_EQ(set.minimum(), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(set.maximum(), *std::max_element(values.begin(), values.end()));
    EXPECT_EQ(set.mean(), static_cast<double>(naive_sum(values)) / values.size());
    EXPECT_EQ(set.median(), naive_median(values));
    Values sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t percent = 0; percent <= 100; ++percent) {
        EXPECT_EQ(set.quantile(percent / 100.0), percentile_of_sorted(sorted, percent)) << percent;
    }
    const double deviation = naive_deviation(values);
    EXPECT_NEAR(set.standard_deviation(), deviation, 1e-9 * deviation);
}

// Durations as they come: a log-normal body, a long tail, and some that corrections made negative.
Values random_values(std::mt19937_64& random, std::size_t count) {
    std::lognormal_distribution<double> body(8, 1.5);
    Values values;
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<std::int64_t>(body(random));
        values.push_back(random() % 8 == 0 ? -value : random() % 100 == 0 ? value * 1'000'003 : value);
    }
    return values;
}

TEST(SampleSet, EmptyGivesZeros) {
    const SampleSet set;
    EXPECT_EQ(set.count(), 0u);
    EXPECT_TRUE(set.is_exact());
    EXPECT_EQ(set.mean(), 0);
    EXPECT_EQ(set.median(), 0);
    EXPECT_EQ(set.quantile(0.99), 0);
    EXPECT_EQ(set.minimum(), 0);
    EXPECT_EQ(set.maximum(), 0);
    EXPECT_EQ(set.standard_deviation(), 0);
    EXPECT_EQ(set.memory_bytes(), 0u);
}

TEST(SampleSet, OneSample) {
    expect_same(set_of({4711}), {4711});
}

TEST(SampleSet, ZeroSamplesOfAValueAreNone) {
    SampleSet set;
    set.add(5, 0);
    EXPECT_EQ(set.count(), 0u);
    EXPECT_EQ(set.maximum(), 0);
}

TEST(SampleSet, EvenCountsTakeTheMiddleOfTwo) {
    EXPECT_EQ(set_of({1, 2}).median(), 1.5);
    EXPECT_EQ(set_of({-3, 2}).median(), -0.5);
    EXPECT_EQ(set_of({7, 7, 8, 100}).median(), 7.5);
}

TEST(SampleSet, EqualValuesTakeOnePlace) {
    SampleSet set;
    for (int i = 0; i < 1000; ++i) set.add(123);
    const std::size_t bytes = set.memory_bytes();
    set.add(123, 1'000'000'000'000);
    EXPECT_EQ(set.memory_bytes(), bytes);
    EXPECT_EQ(set.count(), 1'000'000'001'000u);
    EXPECT_EQ(set.median(), 123);
    EXPECT_EQ(set.standard_deviation(), 0);
}

TEST(SampleSet, ExtremesOfTheType) {
    expect_same(set_of({INT64_MAX, INT64_MIN, 0, -1, 1, INT64_MAX}), {INT64_MAX, INT64_MIN, 0, -1, 1, INT64_MAX});
    SampleSet set;
    set.add(INT64_MAX, 1'000'000'000'000);
    set.add(INT64_MAX, 1'000'000'000'000);
    EXPECT_TRUE(set.sum() == static_cast<Wide>(INT64_MAX) * 2'000'000'000'000);
    EXPECT_EQ(set.median(), static_cast<double>(INT64_MAX));
    EXPECT_EQ(set.mean(), static_cast<double>(INT64_MAX));
}

TEST(SampleSet, RanksAreNotMovedByBinaryFractions) {
    SampleSet set;
    for (int i = 1; i <= 100; ++i) set.add(i);
    EXPECT_EQ(set.quantile(0.07), 7);  // 0.07 * 100 is 7.000000000000001
    EXPECT_EQ(set.quantile(0.99), 99);
    EXPECT_EQ(set.quantile(-1), 1);
    EXPECT_EQ(set.quantile(2), 100);
}

TEST(SampleSet, AgreesWithSortingOnRandomValues) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 60; ++round) {
        const Values values = random_values(random, 1 + random() % 3000);
        expect_same(set_of(values), values);
    }
}

TEST(SampleSet, AgreesWithSortingOnValuesFromAllOfTheType) {
    std::mt19937_64 random(2);
    Values values;
    for (int i = 0; i < 2000; ++i) values.push_back(static_cast<std::int64_t>(random()));
    expect_same(set_of(values), values);
}

TEST(SampleSet, MergingIsAddingEverything) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 20; ++round) {
        Values all;
        SampleSet merged;
        for (int part = 0; part < 5; ++part) {
            const Values values = random_values(random, random() % 500);
            merged.add_all(set_of(values));
            all.insert(all.end(), values.begin(), values.end());
        }
        if (!all.empty()) expect_same(merged, all);
    }
}

TEST(SampleView, ReadsSeveralSetsAsOne) {
    std::mt19937_64 random(4);
    const Values one = random_values(random, 1001), other = random_values(random, 400);
    Values all = one;
    all.insert(all.end(), other.begin(), other.end());
    const SampleSet first = set_of(one), second = set_of(other), empty;
    SampleView view(first);
    view.add(empty);
    view.add(second);
    EXPECT_EQ(view.count(), all.size());
    EXPECT_TRUE(view.is_exact());
    EXPECT_EQ(view.median(), naive_median(all));
    EXPECT_EQ(view.quantile(0.9), naive_percentile(all, 90));
    EXPECT_EQ(view.minimum(), *std::min_element(all.begin(), all.end()));
    EXPECT_EQ(view.maximum(), *std::max_element(all.begin(), all.end()));
    EXPECT_NEAR(view.standard_deviation(), naive_deviation(all), 1e-9 * naive_deviation(all));
}

// Quantiles of a coarse set, and what else of it must stay exact.
void expect_close(const SampleSet& set, const Values& values) {
    ASSERT_EQ(set.count(), values.size());
    EXPECT_FALSE(set.is_exact());
    EXPECT_TRUE(set.sum() == naive_sum(values));
    EXPECT_EQ(set.mean(), static_cast<double>(naive_sum(values)) / values.size());
    EXPECT_EQ(set.minimum(), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(set.maximum(), *std::max_element(values.begin(), values.end()));
    Values sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t percent = 0; percent <= 100; ++percent) {
        const double exact = percentile_of_sorted(sorted, percent);
        EXPECT_NEAR(set.quantile(percent / 100.0), exact, std::abs(exact) / 128) << percent;
    }
    const double deviation = naive_deviation(values);
    EXPECT_NEAR(set.standard_deviation(), deviation, 1e-6 * deviation + 1e-6);
}

TEST(SampleBudget, SpentItKeepsQuantilesWithinTheBound) {
    std::mt19937_64 random(5);
    for (int round = 0; round < 30; ++round) {
        SampleBudget budget{.limit_bytes = 256u << (round % 8)};
        const Values values = random_values(random, 20'000);
        const SampleSet set = set_of(values, &budget);
        expect_close(set, values);
        EXPECT_EQ(budget.coarse_sets, 1u);
        EXPECT_EQ(budget.used_bytes, set.memory_bytes());
    }
}

TEST(SampleBudget, SpentItBoundsMemory) {
    SampleBudget budget{.limit_bytes = 64 * 1024};
    SampleSet set(&budget);
    std::mt19937_64 random(6);
    Values values;
    for (int i = 0; i < 300'000; ++i) {
        const std::int64_t value = static_cast<std::int64_t>(random()) >> (random() % 64);
        values.push_back(value);
        set.add(value);
        ASSERT_LE(set.memory_bytes(), SampleSet::kMaxCoarseBytes);
    }
    set.add(INT64_MIN);
    set.add(INT64_MAX);
    values.push_back(INT64_MIN);
    values.push_back(INT64_MAX);
    expect_close(set, values);
}

TEST(SampleBudget, NarrowDistributionsKeepTheirDeviation) {
    SampleBudget budget{.limit_bytes = 0};
    SampleSet set(&budget);
    Values values;
    for (int i = 0; i < 1000; ++i) values.push_back(1'000'000'000 + i % 7);  // all in one step of the histogram
    for (const std::int64_t value : values) set.add(value);
    expect_close(set, values);
    EXPECT_EQ(set.quantile(0), 1'000'000'000);
    EXPECT_EQ(set.quantile(1), 1'000'000'006);
}

TEST(SampleBudget, SmallValuesStayExact) {
    SampleBudget budget{.limit_bytes = 0};
    SampleSet set(&budget);
    for (int i = -127; i <= 127; ++i) set.add(i);
    EXPECT_FALSE(set.is_exact());
    EXPECT_EQ(set.median(), 0);
    EXPECT_EQ(set.quantile(0.25), -64);
}

TEST(SampleBudget, MergesOfCoarseAndExactSetsAreCoarse) {
    std::mt19937_64 random(7);
    for (const bool coarse_first : {false, true}) {
        SampleBudget none{.limit_bytes = 0};
        const Values one = random_values(random, 3000), other = random_values(random, 2000);
        SampleSet merged = set_of(one, coarse_first ? &none : nullptr);
        const SampleSet added = set_of(other, coarse_first ? nullptr : &none);
        SampleView view(merged);
        view.add(added);
        Values all = one;
        all.insert(all.end(), other.begin(), other.end());
        EXPECT_FALSE(view.is_exact());
        EXPECT_NEAR(view.quantile(0.5), naive_percentile(all, 50), std::abs(naive_percentile(all, 50)) / 128);
        EXPECT_NEAR(view.standard_deviation(), naive_deviation(all), 1e-6 * naive_deviation(all));
        merged.add_all(added);
        expect_close(merged, all);
    }
}

TEST(SampleBudget, MergingMayEndExactnessMidway) {
    std::mt19937_64 random(8);
    const Values one = random_values(random, 100), other = random_values(random, 5000);
    SampleBudget budget{.limit_bytes = 16 * 1024};
    SampleSet merged = set_of(one, &budget);
    ASSERT_TRUE(merged.is_exact());
    merged.add_all(set_of(other));
    Values all = one;
    all.insert(all.end(), other.begin(), other.end());
    expect_close(merged, all);
}

TEST(SampleBudget, MemoryIsGivenBack) {
    SampleBudget budget{.limit_bytes = 1 << 20};
    {
        SampleSet one = set_of({1, 2, 3}, &budget);
        SampleSet moved = std::move(one);
        EXPECT_EQ(budget.used_bytes, moved.memory_bytes());
        SampleSet other(&budget);
        other.add(9);
        other = std::move(moved);
        EXPECT_EQ(other.count(), 3u);
        EXPECT_EQ(other.median(), 2);
    }
    EXPECT_EQ(budget.used_bytes, 0u);
}

}  // namespace
}  // namespace hostrange
