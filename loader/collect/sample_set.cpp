// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/sample_set.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace hostrange {
namespace {

constexpr std::size_t kFirstSlots = 16;
constexpr int kStepBits = 6;  // 64 steps per power of two

// The middle of the histogram step in which the value lies. Steps below 128 hold a single value.
std::int64_t step_middle(std::int64_t value) {
    const bool is_negative = value < 0;
    const std::uint64_t magnitude = is_negative ? -static_cast<std::uint64_t>(value) : value;
    const int power = std::bit_width(magnitude) - 1;
    if (power <= kStepBits) return value;
    if (power == 63) return value;  // only the smallest integer
    const std::uint64_t step = std::uint64_t{1} << (power - kStepBits);
    const std::int64_t middle = static_cast<std::int64_t>((magnitude & ~(step - 1)) + step / 2);
    return is_negative ? -middle : middle;
}

// Integers in an order-preserving unsigned form.
std::uint64_t biased(std::int64_t value) {
    return static_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << 63);
}
std::int64_t unbiased(std::uint64_t value) {
    return static_cast<std::int64_t>(value ^ (std::uint64_t{1} << 63));
}

}  // namespace

SampleSet& SampleSet::operator=(SampleSet&& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(used_, other.used_);
    std::swap(shift_, other.shift_);
    std::swap(totals_, other.totals_);
    std::swap(budget_, other.budget_);
    return *this;
}

SampleSet::~SampleSet() {
    if (budget_) budget_->used_bytes -= memory_bytes();
}

void SampleSet::add_all(const SampleSet& other) {
    if (other.count() == 0) return;
    if (is_exact() && !other.is_exact()) become_coarse();
    totals_.count += other.totals_.count;
    totals_.sum += other.totals_.sum;
    totals_.minimum = std::min(totals_.minimum, other.totals_.minimum);
    totals_.maximum = std::max(totals_.maximum, other.totals_.maximum);
    for (const Slot& slot : other.slots_) {
        if (slot.count == 0) continue;
        if (!other.is_exact()) {
            place(slot.value, slot.count);
        } else if (is_exact()) {
            place(slot.value, slot.count);  // this may end exactness
        } else {
            add_coarse(slot.value, slot.count);
        }
    }
    if (!other.is_exact()) {
        const long double distance = static_cast<long double>(other.sum()) / other.count() - totals_.pivot;
        totals_.squares += other.squares_about_mean() + other.count() * distance * distance;
    }
}

// `totals_` already contain the value that made the set give up; the slots do not, so the squares come from these.
void SampleSet::become_coarse() {
    totals_.is_exact = false;
    if (budget_) ++budget_->coarse_sets;
    if (totals_.count != 0) {
        totals_.pivot = static_cast<std::int64_t>(static_cast<long double>(totals_.sum) / totals_.count);
    }
    std::vector<Slot> exact;
    std::swap(slots_, exact);
    used_ = 0;
    for (const Slot& slot : exact) {
        if (slot.count != 0) add_coarse(slot.value, slot.count);
    }
    if (budget_) budget_->used_bytes -= exact.size() * sizeof(Slot);
}

void SampleSet::add_coarse(std::int64_t value, std::uint64_t count) {
    const long double distance = static_cast<long double>(value) - totals_.pivot;
    totals_.squares += count * distance * distance;
    place(step_middle(value), count);
}

void SampleSet::place_after_growth(std::int64_t value, std::uint64_t count) {
    const std::size_t slot_count = slots_.empty() ? kFirstSlots : slots_.size() * 2;
    // The old table lives until the new one is filled, so both must fit.
    if (totals_.is_exact && budget_ && budget_->used_bytes + slot_count * sizeof(Slot) > budget_->limit_bytes) {
        become_coarse();
        add_coarse(value, count);
        return;
    }
    rebuild(slot_count);
    place(value, count);
}

void SampleSet::rebuild(std::size_t slot_count) {
    std::vector<Slot> old(slot_count);
    std::swap(slots_, old);
    shift_ = 64 - std::countr_zero(slot_count);
    used_ = 0;
    if (budget_) budget_->used_bytes += (slots_.size() - old.size()) * sizeof(Slot);
    for (const Slot& slot : old) {
        if (slot.count != 0) place(slot.value, slot.count);
    }
}

long double SampleSet::squares_about_mean() const {
    if (totals_.count == 0) return 0;
    const long double mean = static_cast<long double>(totals_.sum) / totals_.count;
    if (!totals_.is_exact) {
        const long double distance = mean - totals_.pivot;
        return std::max(totals_.squares - totals_.count * distance * distance, 0.0L);
    }
    long double squares = 0;
    for (const Slot& slot : slots_) squares += slot.count * (slot.value - mean) * (slot.value - mean);
    return squares;
}

double SampleSet::mean() const {
    return SampleView(*this).mean();
}
double SampleSet::median() const {
    return SampleView(*this).median();
}
double SampleSet::quantile(double share) const {
    return SampleView(*this).quantile(share);
}
std::int64_t SampleSet::minimum() const {
    return SampleView(*this).minimum();
}
std::int64_t SampleSet::maximum() const {
    return SampleView(*this).maximum();
}
double SampleSet::standard_deviation() const {
    return SampleView(*this).standard_deviation();
}

void SampleView::add(const SampleSet& set) {
    if (set.count() == 0) return;
    sets_.push_back(&set);
    count_ += set.count();
    sum_ += set.sum();
}

bool SampleView::is_exact() const {
    return std::all_of(sets_.begin(), sets_.end(), [](const SampleSet* set) { return set->is_exact(); });
}

double SampleView::mean() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

double SampleView::median() const {
    if (count_ == 0) return 0;
    const std::int64_t upper = value_at(count_ / 2 + 1);
    if (count_ % 2 == 1) return static_cast<double>(upper);
    return static_cast<double>(static_cast<Wide>(value_at(count_ / 2)) + upper) / 2;
}

double SampleView::quantile(double share) const {
    if (count_ == 0) return 0;
    // 0.07 * 100 is a little more than 7 in binary, and means rank 7.
    const double position = std::clamp(share, 0.0, 1.0) * static_cast<double>(count_);
    const double rank = std::ceil(position * (1 - 4 * std::numeric_limits<double>::epsilon()));
    return static_cast<double>(value_at(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(rank), 1, count_)));
}

std::int64_t SampleView::minimum() const {
    std::int64_t minimum = INT64_MAX;
    for (const SampleSet* set : sets_) minimum = std::min(minimum, set->totals_.minimum);
    return count_ == 0 ? 0 : minimum;
}

std::int64_t SampleView::maximum() const {
    std::int64_t maximum = INT64_MIN;
    for (const SampleSet* set : sets_) maximum = std::max(maximum, set->totals_.maximum);
    return count_ == 0 ? 0 : maximum;
}

double SampleView::standard_deviation() const {
    if (count_ == 0) return 0;
    const long double mean = static_cast<long double>(sum_) / count_;
    long double squares = 0;
    for (const SampleSet* set : sets_) {
        const long double distance = static_cast<long double>(set->sum()) / set->count() - mean;
        squares += set->squares_about_mean() + set->count() * distance * distance;
    }
    return static_cast<double>(std::sqrt(squares / count_));
}

// The rank-th smallest value, from 1. Counts the values in up to 2048 equal intervals, goes on inside the one that
// holds the rank, and so needs no sorted copy of what may be hundreds of megabytes.
std::int64_t SampleView::value_at(std::uint64_t rank) const {
    if (rank <= 1) return minimum();
    if (rank >= count_) return maximum();
    std::uint64_t low = biased(minimum()), high = biased(maximum());
    while (low != high) {
        const int shift = std::max(0, static_cast<int>(std::bit_width(low ^ high)) - 11);
        std::array<std::uint64_t, 2048> counts{};
        for (const SampleSet* set : sets_) {
            for (const SampleSet::Slot& slot : set->slots_) {
                if (slot.count == 0) continue;
                // The middle of a histogram step may lie beyond the smallest or largest value.
                const std::int64_t value = std::clamp(slot.value, set->totals_.minimum, set->totals_.maximum);
                const std::uint64_t key = biased(value);
                if (key >= low && key <= high) counts[(key >> shift) - (low >> shift)] += slot.count;
            }
        }
        std::uint64_t interval = low >> shift;
        for (std::size_t i = 0; rank > counts[i]; ++i, ++interval) rank -= counts[i];
        low = std::max(low, interval << shift);
        high = std::min(high, (interval << shift) + ((std::uint64_t{1} << shift) - 1));
    }
    return unbiased(low);
}

}  // namespace hostrange
