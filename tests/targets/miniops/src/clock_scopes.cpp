// SPDX-License-Identifier: Apache-2.0
#include "miniops/clock_scopes.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <tuple>

namespace miniops::clock_scopes {
namespace {

constexpr std::array<const char*, kRangeCount> kRangeNames = {"binding.body",
                                                              "binding.tensor_conversion",
                                                              "binding.device_conversion",
                                                              "dispatch.call",
                                                              "operator.call",
                                                              "cache.key",
                                                              "cache.lookup",
                                                              "cache.construct",
                                                              "operator.invoke",
                                                              "backend.submit"};

std::int64_t NowNanoseconds() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

struct OpenScope {
    Range range;
    std::int64_t start_ns;
    std::int64_t children_ns;
};

struct FinishedScope {
    Range range;
    std::int64_t inclusive_ns;
    std::int64_t self_ns;
};

struct Samples {
    std::vector<std::int64_t> inclusive_ns;
    std::vector<std::int64_t> self_ns;
};

using SampleKey = std::tuple<std::string, bool, Range>;  // operator, cold, range

struct ThreadRecord {
    std::vector<OpenScope> open;
    std::vector<FinishedScope> call_tree;
    const char* operator_name = nullptr;
    bool cold = false;
    bool unwound = false;
    std::uint64_t unwound_call_trees = 0;
    std::map<SampleKey, Samples> samples;
};

std::atomic<bool> active{false};
std::mutex registry_mutex;
std::vector<std::shared_ptr<ThreadRecord>> registry;  // also of threads that have ended

ThreadRecord& ThisThread() {
    thread_local const std::shared_ptr<ThreadRecord> record = [] {
        auto made = std::make_shared<ThreadRecord>();
        made->open.reserve(32);
        made->call_tree.reserve(64);
        const std::lock_guard lock(registry_mutex);
        registry.push_back(made);
        return made;
    }();
    return *record;
}

void CommitCallTree(ThreadRecord& thread) {
    if (thread.unwound) {
        ++thread.unwound_call_trees;
    } else {
        const std::string operator_name = thread.operator_name == nullptr ? "" : thread.operator_name;
        for (const FinishedScope& scope : thread.call_tree) {
            Samples& samples = thread.samples[{operator_name, thread.cold, scope.range}];
            samples.inclusive_ns.push_back(scope.inclusive_ns);
            samples.self_ns.push_back(scope.self_ns);
        }
    }
    thread.call_tree.clear();
    thread.operator_name = nullptr;
    thread.cold = false;
    thread.unwound = false;
}

double Mean(const std::vector<std::int64_t>& values) {
    const auto sum = std::accumulate(values.begin(), values.end(), std::int64_t{0});
    return static_cast<double>(sum) / static_cast<double>(values.size());
}

double Median(std::vector<std::int64_t> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    if (values.size() % 2 == 1) return static_cast<double>(values[middle]);
    return (static_cast<double>(values[middle - 1]) + static_cast<double>(values[middle])) / 2;
}

}  // namespace

Scope::Scope(Range range, const char* operator_name) noexcept {
    if (!active.load(std::memory_order_relaxed)) return;
    ThreadRecord& thread = ThisThread();
    if (thread.operator_name == nullptr) thread.operator_name = operator_name;
    if (range == Range::kCacheConstruct) thread.cold = true;
    thread.open.push_back({range, 0, 0});
    thread.open.back().start_ns = NowNanoseconds();
}

Scope::~Scope() {
    if (!active.load(std::memory_order_relaxed)) return;
    const std::int64_t end_ns = NowNanoseconds();
    ThreadRecord& thread = ThisThread();
    const OpenScope scope = thread.open.back();
    thread.open.pop_back();
    const std::int64_t inclusive_ns = end_ns - scope.start_ns;
    thread.call_tree.push_back({scope.range, inclusive_ns, inclusive_ns - scope.children_ns});
    if (std::uncaught_exceptions() > 0) thread.unwound = true;
    if (thread.open.empty()) {
        CommitCallTree(thread);
    } else {
        thread.open.back().children_ns += inclusive_ns;
    }
}

void Start() {
    const std::lock_guard lock(registry_mutex);
    if (active) throw std::logic_error("clock scopes are already started");
    for (const auto& thread : registry) {
        thread->samples.clear();
        thread->unwound_call_trees = 0;
    }
    active = true;
}

std::vector<Row> Stop() {
    const std::lock_guard lock(registry_mutex);
    if (!active) throw std::logic_error("clock scopes are not started");
    active = false;

    std::map<SampleKey, Samples> merged;
    for (const auto& thread : registry) {
        for (const auto& [key, samples] : thread->samples) {
            Samples& all = merged[key];
            all.inclusive_ns.insert(all.inclusive_ns.end(), samples.inclusive_ns.begin(), samples.inclusive_ns.end());
            all.self_ns.insert(all.self_ns.end(), samples.self_ns.begin(), samples.self_ns.end());
        }
    }
    std::vector<Row> rows;
    for (const auto& [key, samples] : merged) {
        const auto& [operator_name, cold, range] = key;
        Row row{operator_name, "cpu", cold ? "cold" : "warm", kRangeNames[static_cast<std::size_t>(range)],
                "inclusive"};
        row.count = samples.inclusive_ns.size();
        row.mean_ns = Mean(samples.inclusive_ns);
        row.median_ns = Median(samples.inclusive_ns);
        rows.push_back(row);
        row.metric = "self";
        row.mean_ns = Mean(samples.self_ns);
        row.median_ns = Median(samples.self_ns);
        rows.push_back(row);
    }
    return rows;
}

std::uint64_t UnwoundCallTrees() {
    const std::lock_guard lock(registry_mutex);
    std::uint64_t total = 0;
    for (const auto& thread : registry) total += thread->unwound_call_trees;
    return total;
}

}  // namespace miniops::clock_scopes
