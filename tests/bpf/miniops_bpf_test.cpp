// SPDX-License-Identifier: Apache-2.0
// The bundled operator library under the default probe map: what a user of such a library sees, with exact counts.
#include <set>

#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

constexpr std::uint64_t kThreads = 2, kCalls = 20;

std::vector<std::string> workload(const std::string& build, const std::vector<std::string>& more) {
    std::vector<std::string> command = {
        "/usr/bin/python3", std::string(HOSTRANGE_SOURCE_DIR) + "/tests/targets/miniops/workload.py",
        "--package-dir",    std::string(HOSTRANGE_MINIOPS_DIR) + "/" + build,
        "--threads",        std::to_string(kThreads),
        "--calls",          std::to_string(kCalls)};
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

std::uint64_t count(const Report& report, const std::string& operator_name, const std::string& range,
                    const std::string& phase) {
    std::uint64_t total = 0;
    for (const nlohmann::json& row : report.rows) {
        if (row.at("operator") == operator_name && row.at("range") == range && row.at("metric") == "inclusive" &&
            (phase.empty() || row.at("phase") == phase)) {
            total += row.at("count").get<std::uint64_t>();
        }
    }
    return total;
}

class Miniops : public testing::TestWithParam<std::string> {};

TEST_P(Miniops, EveryRangeOfEveryCall) {
    REQUIRE_BPF();
    std::vector<std::string> arguments = {"run", "--"};
    for (const std::string& word : workload(GetParam(), {})) arguments.push_back(word);
    Profiler profiler(arguments);
    const Report report = profiler.finish();
    expect_sound(report);
    const std::uint64_t calls = kThreads * kCalls;
    for (const std::string name : {"add", "mul", "gemm", "rms_norm"}) {
        for (const std::string range :
             {"binding.body", "dispatch.call", "operator.call", "operator.invoke", "backend.submit"}) {
            EXPECT_EQ(count(report, name, range, ""), calls) << name << " " << range;
        }
        // A call is cold if and only if the operator was built in it.
        const std::uint64_t cold = count(report, name, "cache.construct", "cold");
        EXPECT_GE(cold, kThreads) << name;
        EXPECT_EQ(count(report, name, "cache.construct", "warm"), 0u) << name;
        EXPECT_EQ(count(report, name, "binding.body", "cold"), cold) << name;
        EXPECT_EQ(count(report, name, "backend.submit", "cold"), cold) << name;
        if (name != "rms_norm") {
            EXPECT_EQ(count(report, name, "binding.tensor_conversion", ""), 3 * calls) << name;
            const bool asks_for_device = name == "add" || name == "gemm";
            EXPECT_EQ(count(report, name, "binding.device_conversion", ""), asks_for_device ? calls : 0) << name;
            EXPECT_EQ(count(report, name, "binding.tensor_conversion", "cold"), 3 * cold) << name;
        }
    }
    // Labels are inherited by scopes whose own symbols do not say.
    for (const nlohmann::json& row : report.rows) {
        EXPECT_EQ(row.at("backend"), "cpu") << row.dump();
        EXPECT_EQ(row.at("implementation"), "0") << row.dump();
        EXPECT_NE(row.at("operator"), "") << row.dump();
    }
    // The device conversions inside tensor conversions are none of their own.
    EXPECT_GT(report.meta.at("totals").at("outside_condition").get<std::uint64_t>(), 0u);
    // Every range of the map has its place, and for each call as many scopes as upstream counts.
    EXPECT_EQ(report.meta.at("not_seen"), nlohmann::json::array());
    EXPECT_EQ(report.printed.find("not seen"), std::string::npos) << report.printed;
}

// A bad argument makes the conversion throw through two probed functions; Python sees ValueError, and all goes on.
TEST_P(Miniops, RefusedArgumentsUnwind) {
    REQUIRE_BPF();
    std::vector<std::string> arguments = {"run", "--"};
    for (const std::string& word : workload(GetParam(), {"--error-every", "5"})) arguments.push_back(word);
    Profiler profiler(arguments);
    const Report report = profiler.finish();
    expect_sound(report);
    const std::uint64_t errors = kThreads * kCalls / 5;
    EXPECT_NE(report.printed.find("\"errors\": " + std::to_string(errors)), std::string::npos) << report.printed;
    EXPECT_EQ(report.counters("binding.body").by_exception, errors);
    EXPECT_EQ(report.counters("binding.tensor_conversion").by_exception, errors);
    EXPECT_EQ(count(report, "add", "binding.body", ""), kThreads * kCalls);
}

INSTANTIATE_TEST_SUITE_P(Builds, Miniops, testing::Values("relwithdebinfo", "release"),
                         [](const auto& info) { return info.param; });

// The ten fields of the upstream profiler, in its order, with its separators.
TEST(MiniopsReport, HasUpstreamsFields) {
    REQUIRE_BPF();
    std::string command;
    for (const std::string& word : workload("release", {})) command += " " + word;
    Child profiler({"/bin/sh", "-c", profiler_path() + " run --output - --" + command + " | grep nodeid"});
    EXPECT_EQ(profiler.finish(), 0) << profiler.error();
    const std::string line = profiler.output().substr(0, profiler.output().find('\n'));
    EXPECT_EQ(line.rfind("{\"nodeid\":\"\",\"operator\":\"add\",\"backend\":\"cpu\",\"phase\":\"cold\",\"range\":"
                         "\"binding.body\",\"metric\":\"inclusive\",\"count\":",
                         0),
              0u)
        << line;
    const nlohmann::ordered_json row = nlohmann::ordered_json::parse(line);
    std::vector<std::string> fields;
    for (const auto& [name, value] : row.items()) fields.push_back(name);
    EXPECT_EQ(fields, (std::vector<std::string>{"nodeid", "operator", "backend", "phase", "range", "metric", "count",
                                                "unit", "mean", "median"}));
}

}  // namespace
}  // namespace hostrange::test
