// SPDX-License-Identifier: Apache-2.0
// Known numbers of calls, from one thread and from many; both ways of attaching, both ways of seeing ends.
#include <csignal>
#include <set>

#include "loader/probes/process_maps.h"
#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

// What every row of nested ranges must satisfy, since the sums are exact: parents last at least as long as their
// children.
void expect_parents_last_longer(const Report& report) {
    double outer = 0, middle = 0, inner = 0;
    for (const nlohmann::json& row : report.rows) {
        if (row.at("metric") != "inclusive") continue;
        const double total = row.at("mean").get<double>() * row.at("count").get<double>();
        if (row.at("range") == "outer") outer += total;
        if (row.at("range") == "middle") middle += total;
        if (row.at("range") == "inner") inner += total;
    }
    // Each holds all of the next one, and hits of its own.
    EXPECT_GT(outer, middle);
    EXPECT_GT(middle, inner);
    EXPECT_GT(inner, 0);
    for (const nlohmann::json& row : report.rows) {
        // In no call tree is a parent shorter than its children: then every self time is at least zero.
        EXPECT_GE(row.at("min").get<double>(), 0) << row.dump();
    }
}

struct Way {
    std::string name;
    std::vector<std::string> options;
};

std::ostream& operator<<(std::ostream& stream, const Way& way) {
    return stream << way.name;
}

class Counts : public testing::TestWithParam<Way> {};

TEST_P(Counts, OneThread) {
    REQUIRE_BPF();
    std::string result;
    const Report report =
        profile_target({target_path("hard_case_calls"), "single", "1000"}, GetParam().options, result);
    expect_sound(report);
    EXPECT_EQ(report.sum("outer"), 1000u);
    EXPECT_EQ(report.sum("middle"), 2000u);
    EXPECT_EQ(report.sum("inner"), 6000u);
    EXPECT_EQ(report.meta.at("totals").at("trees"), 1000);
    expect_parents_last_longer(report);
}

TEST_P(Counts, EightThreads) {
    REQUIRE_BPF();
    std::string result;
    const Report report =
        profile_target({target_path("hard_case_calls"), "threads", "500", "8"}, GetParam().options, result);
    expect_sound(report);
    EXPECT_EQ(report.sum("outer"), 4000u);
    EXPECT_EQ(report.sum("middle"), 8000u);
    EXPECT_EQ(report.sum("inner"), 24000u);
    EXPECT_EQ(report.sum("outer", "threads"), 8u);
    expect_parents_last_longer(report);
}

// The probes were placed in the way that was asked for.
void expect_way(const Report& report, const std::vector<std::string>& options) {
    const bool multi = options[0] == "--attach=uprobe_multi", uretprobes = options[1] == "--return-probes=uretprobe";
    EXPECT_EQ(report.meta.at("attach"), multi ? "uprobe_multi" : "perf_event");
    std::set<std::string> ends;
    for (const nlohmann::json& file : report.meta.at("files"))
        for (const nlohmann::json& site : file.at("sites"))
            if (!site.contains("counters")) ends.insert(site.at("kind").get<std::string>());
    EXPECT_EQ(ends, (std::set<std::string>{uretprobes ? "uretprobe" : "ret"}));
}

TEST_P(Counts, AreTakenInTheWayThatWasAskedFor) {
    REQUIRE_BPF();
    std::string result;
    const Report report = profile_target({target_path("hard_case_calls"), "single", "3"}, GetParam().options, result);
    expect_sound(report);
    expect_way(report, GetParam().options);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Counts,
    testing::Values(Way{"MultiLinkRet", {"--attach=uprobe_multi", "--return-probes=ret"}},
                    Way{"MultiLinkUretprobe", {"--attach=uprobe_multi", "--return-probes=uretprobe"}},
                    Way{"PerfEventRet", {"--attach=perf_event", "--return-probes=ret"}},
                    Way{"PerfEventUretprobe", {"--attach=perf_event", "--return-probes=uretprobe"}}),
    [](const auto& info) { return info.param.name; });

// The ring is far too small: much is lost, all of it is counted, and the totals stay exact.
TEST(Overrun, IsCountedAndTotalsStayExact) {
    REQUIRE_BPF();
    std::string result;
    const std::vector<std::string> target = {target_path("hard_case_calls"), "threads", "20000", "2"};
    const Report report = profile_target(target, {"--ring-size=4k", "--return-probes=uretprobe"}, result);
    ASSERT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(result, unprobed_result(target));
    EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
    const std::map<std::string, std::uint64_t> calls = {{"outer", 40000}, {"middle", 80000}, {"inner", 240000}};
    std::uint64_t lost = 0;
    for (const auto& [range, count] : calls) {
        const RangeCounters counters = report.counters(range);
        EXPECT_EQ(counters.exits, count) << range;
        EXPECT_EQ(report.sum(range) + counters.lost, count) << range;
        lost += counters.lost;
    }
    EXPECT_GT(lost, 0u);
    EXPECT_NE(report.printed.find("lost"), std::string::npos) << report.printed;
}

// Two processes use one library; one is profiled. The other's calls are counted nowhere; that it has no breakpoint in
// its memory is tested in run_bpf_test.
TEST(Bystander, TakesNoBreakpoint) {
    REQUIRE_BPF();
    Child bystander({target_path("hard_case_calls"), "spin", "1000"});
    bystander.wait_for_output("ready");
    Child target({target_path("hard_case_calls"), "single", "1000"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
    const std::uint64_t started = describe_process(target.process())->start_ticks;
    bystander.release();
    target.release();
    EXPECT_EQ(target.finish(), 0);
    const Report report = profiler.finish();
    EXPECT_EQ(bystander.finish(), 0);
    expect_sound(report);
    EXPECT_EQ(report.counters("outer").entries, 1000u);
    ASSERT_EQ(report.meta.at("processes").size(), 1u);
    EXPECT_EQ(report.meta.at("processes").at(0).at("pid"), target.process());
    // The kernel's start time is that of /proc/PID/stat, in finer units.
    EXPECT_EQ(
        report.meta.at("processes").at(0).at("start_ns").get<std::uint64_t>() / (1000000000u / sysconf(_SC_CLK_TCK)),
        started);
}

TEST(Processes, TwoAtATimeHaveRowsOfTheirOwn) {
    REQUIRE_BPF();
    Child one({target_path("hard_case_calls"), "single", "300"});
    Child two({target_path("hard_case_calls"), "single", "500"});
    one.wait_for_output("ready");
    two.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(one.process()), "--pid", std::to_string(two.process()), "--probe-map",
                       hard_cases_map()});
    one.release();
    two.release();
    EXPECT_EQ(one.finish(), 0);
    EXPECT_EQ(two.finish(), 0);
    const Report report = profiler.finish();
    expect_sound(report);
    std::map<pid_t, std::uint64_t> outer_calls;
    for (const nlohmann::json& row : report.rows) {
        if (row.at("range") == "outer" && row.at("metric") == "inclusive") {
            outer_calls[row.at("pid").get<pid_t>()] += row.at("count").get<std::uint64_t>();
            EXPECT_EQ(row.at("comm"), "hard_case_calls");
        }
    }
    EXPECT_EQ(outer_calls, (std::map<pid_t, std::uint64_t>{{one.process(), 300}, {two.process(), 500}}));
}

TEST(Processes, AllFindsThoseThatRunAndThoseThatComeLater) {
    REQUIRE_BPF();
    Child early({target_path("hard_case_calls"), "single", "300"});
    early.wait_for_output("ready");
    Profiler profiler({"--all", "--probe-map", hard_cases_map()});
    early.release();
    EXPECT_EQ(early.finish(), 0);
    Child late({target_path("hard_case_calls"), "single", "500"});
    late.wait_for_output("ready");
    late.release();
    EXPECT_EQ(late.finish(), 0);
    profiler.child().signal(SIGINT);
    const Report report = profiler.finish();
    expect_sound(report);
    std::map<pid_t, std::uint64_t> outer_calls;
    for (const nlohmann::json& row : report.rows) {
        if (row.at("range") == "outer" && row.at("metric") == "inclusive") {
            outer_calls[row.at("pid").get<pid_t>()] += row.at("count").get<std::uint64_t>();
        }
    }
    // Others may run such a program at the same time.
    EXPECT_EQ(outer_calls[early.process()], 300u);
    EXPECT_EQ(outer_calls[late.process()], 500u);
}

TEST(Interrupt, MakesTheReportAndLeavesTheTargetRunning) {
    REQUIRE_BPF();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        Child target({target_path("hard_case_calls"), "spin", "100"});
        target.wait_for_output("ready");
        Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
        profiler.child().signal(signal);
        const Report report = profiler.finish();
        expect_sound(report);
        target.release();
        EXPECT_EQ(target.finish(), 0);
    }
}

}  // namespace
}  // namespace hostrange::test
