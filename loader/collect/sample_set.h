// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hostrange {

// Memory that all sample sets of a session may use together.
struct SampleBudget {
    std::size_t limit_bytes;
    std::size_t used_bytes = 0;
    std::uint64_t coarse_sets = 0;  // sets that had to give up exactness
};

// Durations in nanoseconds, kept as value -> count, so that memory grows with the number of distinct values and not with
// the number of samples. Count, sum, mean, minimum and maximum are always exact. Quantiles are exact until the budget is
// spent; then the set falls back to a log-linear histogram with 64 steps per power of two (error of a quantile at most
// 1/128 = 0.78 %) and is_exact() turns false.
class SampleSet {
public:
    explicit SampleSet(SampleBudget* budget = nullptr);  // no budget: unbounded
    // Movable, not copyable.
    SampleSet(SampleSet&&) noexcept;
    SampleSet& operator=(SampleSet&&) noexcept;
    ~SampleSet();

    void add(std::int64_t value_ns, std::uint64_t count = 1);
    void add_all(const SampleSet& other);

    std::uint64_t count() const;
    bool is_exact() const;
    double mean() const;                 // ns; 0 when empty
    double median() const;               // ns; of an even count the mean of the two middle values; 0 when empty
    double quantile(double share) const; // ns; nearest rank, share in [0, 1]
    std::int64_t minimum() const;        // ns; 0 when empty
    std::int64_t maximum() const;
    double standard_deviation() const;   // ns, of the population
    __extension__ typedef __int128 Wide;
    Wide sum() const;                    // ns, exact
    std::size_t memory_bytes() const;

private:
    struct Contents;
    Contents* contents_;  // replaced by the implementer with what serves
};

}  // namespace hostrange
