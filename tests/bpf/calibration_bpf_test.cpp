// SPDX-License-Identifier: Apache-2.0
// What probes cost: measured for every pair of an entry and an end, and taken out of a report.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

using Pair = std::pair<std::string, std::string>;

std::set<Pair> all_pairs() {
    std::set<Pair> pairs = {{"lone_jump", "tail_jump"}, {"lone_jump", "callee"}, {"marker", "marker"}};
    for (const char* entry : {"optimised_nop", "emulated", "single_step"})
        for (const char* end :
             {"ret", "uretprobe", "tail_jump", "callee", "jump", "steps_single_step", "steps_emulated"})
            pairs.emplace(entry, end);
    for (const char* entry : {"steps_emulated", "steps_single_step"})
        for (const char* end : {"steps_emulated", "steps_single_step"}) pairs.emplace(entry, end);
    return pairs;
}

class Calibration : public testing::TestWithParam<const char*> {};

TEST_P(Calibration, MeasuresEveryPair) {
    REQUIRE_BPF();
    Child profiler({profiler_path(), "calibrate", "--json", "--attach", GetParam()});
    ASSERT_EQ(profiler.finish(), 0) << profiler.error();
    const nlohmann::json calibration = nlohmann::json::parse(profiler.output());
    EXPECT_EQ(calibration["lost_scopes"], 0);
    std::set<Pair> pairs;
    for (const nlohmann::json& one : calibration["pairs"]) {
        const Pair pair(one["entry"], one["end"]);
        pairs.insert(pair);
        EXPECT_GT(one["full_ns"], 0) << one;
        // What a scope holds of its probes is less than all of it, but for what the function that it has jumped to
        // adds.
        if (pair.second != "tail_jump") {
            EXPECT_LT(one["bias_ns"], one["full_ns"]) << one;
        }
    }
    EXPECT_EQ(pairs, all_pairs());
}

INSTANTIATE_TEST_SUITE_P(Ways, Calibration, testing::Values("uprobe_multi", "perf_event"),
                         [](const auto& info) { return std::string(info.param); });

Report profile(const std::vector<std::string>& options) {
    const std::string output = scratch_file("corrected.jsonl");
    std::vector<std::string> command = {profiler_path(), "run", "--probe-map", hard_cases_map(),
                                        "--fields=all",  "-o",  output};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", target_path("hard_case_calls"), "single", "100"});
    Child profiler(command);
    profiler.release();
    return report_of(profiler, output);
}

TEST(Correction, IsTakenOutOfEveryRow) {
    REQUIRE_BPF();
    const Report corrected = profile({});
    ASSERT_FALSE(corrected.rows.empty());
    ASSERT_FALSE(corrected.meta["calibration"].is_null());
    EXPECT_FALSE(corrected.meta["calibration_drift"].is_null());
    EXPECT_EQ(corrected.printed.find("times are raw"), std::string::npos);
    double self_ns = 0, outermost_ns = 0;
    for (const nlohmann::json& row : corrected.rows) {
        EXPECT_NEAR(row["mean"].get<double>() + row["correction"].get<double>(), row["raw_mean"].get<double>(), 0.01);
        EXPECT_GT(row["correction"], 0) << row;
        EXPECT_GE(row["uncertainty"].get<double>(), 0.1499 * row["correction"].get<double>()) << row;
        if (row["median"] < 0) {
            EXPECT_EQ(row["low_confidence"], true) << row;
        }
        const double total_ns = row["mean"].get<double>() * row["count"].get<double>();
        if (row["metric"] == "self") self_ns += total_ns;
        if (row["metric"] == "inclusive" && row["range"] == "outer") outermost_ns += total_ns;
    }
    EXPECT_NEAR(self_ns, outermost_ns, 1 + std::abs(outermost_ns) * 1e-9);

    // Kept for the next profile.
    EXPECT_EQ(profile({}).meta["calibration"], corrected.meta["calibration"]);
}

TEST(Correction, NotOfRawTimes) {
    REQUIRE_BPF();
    const Report raw = profile({"--raw"});
    ASSERT_FALSE(raw.rows.empty());
    EXPECT_TRUE(raw.meta["calibration"].is_null());
    EXPECT_NE(raw.printed.find("times are raw"), std::string::npos);
    for (const nlohmann::json& row : raw.rows) {
        EXPECT_EQ(row["mean"], row["raw_mean"]);
        EXPECT_TRUE(row["correction"].is_null() && row["uncertainty"].is_null() && row["low_confidence"].is_null());
    }
}

}  // namespace
}  // namespace hostrange::test
