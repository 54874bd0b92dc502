// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hostrange {

__extension__ typedef __int128 Wide;

// Memory that all sample sets of a session may use together.
struct SampleBudget {
    std::size_t limit_bytes;
    std::size_t used_bytes = 0;
    std::uint64_t coarse_sets = 0;  // sets that had to give up exactness
};

// Durations in nanoseconds, kept as value -> count, so that memory grows with the number of distinct values and not
// with the number of samples. Count, sum, mean, minimum and maximum are always exact. Quantiles are exact until the
// budget is spent; then the set that wants to grow falls back to a log-linear histogram with 64 steps per power of two
// (error of a quantile at most 1/128 = 0.78 %, below zero alike) and is_exact() turns false. Such a set takes as many
// places as it has non-empty steps, at most kMaxCoarseBytes, whatever the budget says.
class SampleSet {
public:
    static constexpr std::size_t kMaxCoarseBytes = 256 * 1024;

    explicit SampleSet(SampleBudget* budget = nullptr) : budget_(budget) {}  // no budget: unbounded
    // Movable, not copyable. A set that was moved from may only be assigned to or destroyed.
    SampleSet(SampleSet&& other) noexcept = default;
    SampleSet& operator=(SampleSet&& other) noexcept;
    ~SampleSet();

    void add(std::int64_t value_ns, std::uint64_t count = 1) {
        if (count == 0) return;
        totals_.count += count;
        totals_.sum += static_cast<Wide>(value_ns) * count;
        if (value_ns < totals_.minimum) totals_.minimum = value_ns;
        if (value_ns > totals_.maximum) totals_.maximum = value_ns;
        if (totals_.is_exact) {
            place(value_ns, count);
        } else {
            add_coarse(value_ns, count);
        }
    }
    void add_all(const SampleSet& other);

    std::uint64_t count() const { return totals_.count; }
    bool is_exact() const { return totals_.is_exact; }
    double mean() const;                  // ns; 0 when empty
    double median() const;                // ns; of an even count the mean of the two middle values; 0 when empty
    double quantile(double share) const;  // ns; nearest rank, share in [0, 1]
    std::int64_t minimum() const;         // ns; 0 when empty
    std::int64_t maximum() const;
    double standard_deviation() const;        // ns, of the population
    Wide sum() const { return totals_.sum; }  // ns, exact
    std::size_t memory_bytes() const { return slots_.size() * sizeof(Slot); }

private:
    friend class SampleView;

    // A place of the table, which is open-addressing with linear probing; count 0: free.
    struct Slot {
        std::int64_t value;
        std::uint64_t count;
    };
    struct Totals {
        std::uint64_t count = 0;
        Wide sum = 0;
        std::int64_t minimum = INT64_MAX, maximum = INT64_MIN;
        bool is_exact = true;
        // Of a coarse set: sum of squared distances from `pivot`. The histogram would be too coarse for it.
        std::int64_t pivot = 0;
        long double squares = 0;
    };

    std::size_t place_of(std::int64_t value) const {
        // Fibonacci hashing; the upper bits are the well-mixed ones.
        return static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15u >> shift_;
    }
    void place(std::int64_t value, std::uint64_t count) {
        if (!slots_.empty()) {
            const std::size_t mask = slots_.size() - 1;
            for (std::size_t i = place_of(value);; i = (i + 1) & mask) {
                Slot& slot = slots_[i];
                if (slot.count != 0 && slot.value == value) {
                    slot.count += count;
                    return;
                }
                if (slot.count == 0) {
                    if (used_ * 4 >= slots_.size() * 3) break;
                    slot = {value, count};
                    ++used_;
                    return;
                }
            }
        }
        place_after_growth(value, count);
    }
    void place_after_growth(std::int64_t value, std::uint64_t count);
    void rebuild(std::size_t slot_count);
    void become_coarse();
    void add_coarse(std::int64_t value, std::uint64_t count);
    long double squares_about_mean() const;

    std::vector<Slot> slots_;  // size: 0 or a power of two
    std::size_t used_ = 0;
    unsigned shift_ = 0;
    Totals totals_;
    SampleBudget* budget_;
};

// Several sample sets read as one, without copying them. They must outlive the view and stay as they are.
class SampleView {
public:
    SampleView() = default;
    explicit SampleView(const SampleSet& set) { add(set); }
    void add(const SampleSet& set);

    // As in SampleSet.
    std::uint64_t count() const { return count_; }
    bool is_exact() const;
    double mean() const;
    double median() const;
    double quantile(double share) const;
    std::int64_t minimum() const;
    std::int64_t maximum() const;
    double standard_deviation() const;
    Wide sum() const { return sum_; }

private:
    std::int64_t value_at(std::uint64_t rank) const;

    std::vector<const SampleSet*> sets_;  // none of them empty
    std::uint64_t count_ = 0;
    Wide sum_ = 0;
};

}  // namespace hostrange
