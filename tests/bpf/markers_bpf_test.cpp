// SPDX-License-Identifier: Apache-2.0
// Markers, from the target's call to the row of the report.
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "loader/probes/elf_file.h"
#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

const std::string kMap = HOSTRANGE_SOURCE_DIR "/tests/targets/markers/probe_map.toml";

std::string marked_program(const std::string& name = "markers_target") {
    return std::string(HOSTRANGE_MARKERS_DIR) + "/" + name;
}

// Runs a scenario of the target under `run`, so that it is probed from the start.
Report run_scenario(const std::string& scenario, const std::string& count, std::vector<std::string> options,
                    std::string* result = nullptr, const std::string& program = "markers_target") {
    const std::string output = scratch_file("markers.jsonl");
    std::vector<std::string> command = {profiler_path(), "run", "--raw", "--probe-map", kMap, "--output", output};
    command.insert(command.end(), options.begin(), options.end());
    for (const std::string& word : {std::string("--"), marked_program(program), scenario, count})
        command.push_back(word);
    Child profiler(command, {.environment = {{"TARGET_NO_WAIT", "1"}}, .user = std::nullopt});
    Report report = report_of(profiler, output);
    if (result) *result = report.printed;
    return report;
}

// "nodeid|operator|backend|phase|range count", of inclusive rows.
std::vector<std::string> rows_of(const Report& report) {
    std::vector<std::string> rows;
    for (const auto& row : report.rows) {
        if (row["metric"] != "inclusive") continue;
        rows.push_back(row["nodeid"].get<std::string>() + "|" + row["operator"].get<std::string>() + "|" +
                       row["backend"].get<std::string>() + "|" + row["phase"].get<std::string>() + "|" +
                       row["range"].get<std::string>() + " " + std::to_string(row["count"].get<int>()));
    }
    return rows;
}

const nlohmann::json& marker_counters(const Report& report) {
    for (const auto& site : report.meta["marks"]["sites"])
        if (site["marker"] == "range_begin") return site["counters"];
    throw std::runtime_error("no range_begin marker");
}

using Strings = std::vector<std::string>;

class Markers : public testing::TestWithParam<std::tuple<const char*, const char*>> {
protected:
    void SetUp() override { REQUIRE_BPF(); }
    Report run(const std::string& scenario, const std::string& count, Strings options = {},
               std::string* result = nullptr) {
        options.push_back(std::string("--attach=") + std::get<0>(GetParam()));
        Report report = run_scenario(scenario, count, options, result, std::get<1>(GetParam()));
        expect_sound(report);
        return report;
    }
};

TEST_P(Markers, RangesNest) {
    const Report report = run("ranges", "10", {"--fields=all"});
    EXPECT_EQ(rows_of(report), (Strings{"|||cold|call 1", "|||cold|construct 1", "|||warm|call 29",
                                        "|||warm|innermost 30", "|||warm|inner 30", "|||warm|outer 10"}));
    EXPECT_EQ(marker_counters(report)["entries"], 70);
    EXPECT_EQ(marker_counters(report)["exits"], 70);
    EXPECT_EQ(report.meta["totals"]["trees"], 10);
}

TEST_P(Markers, RangesOfThreads) {
    const Report report = run("threads", "50");
    EXPECT_EQ(report.sum("outer"), 400u);
    EXPECT_EQ(report.sum("inner"), 1200u);
    EXPECT_EQ(report.sum("call"), 1200u);
    EXPECT_EQ(report.meta["totals"]["trees"], 400);
}

TEST_P(Markers, ExceptionsLeaveNoRangeOpen) {
    const Report report = run("throwing", "20", {"--fields=all"});
    EXPECT_EQ(report.sum("outer"), 20u);
    EXPECT_EQ(report.sum("inner"), 20u);
    EXPECT_EQ(report.sum("refuse", "unwound"), 20u);
    EXPECT_EQ(report.meta["totals"]["open"], 0);
}

TEST_P(Markers, RangesMayOverlap) {
    const Report report = run("overlapping", "20");
    EXPECT_EQ(report.sum("first"), 20u);
    EXPECT_EQ(report.sum("second"), 20u);
    EXPECT_EQ(report.sum("call"), 40u);
    EXPECT_EQ(report.orphans(), 0u);
}

TEST_P(Markers, DetachedRangesStandByThemselves) {
    const Report report = run("detached", "20");
    EXPECT_EQ(report.sum("one"), 20u);
    EXPECT_EQ(report.sum("other"), 20u);
    EXPECT_EQ(report.meta["totals"]["trees"], 60);
    EXPECT_EQ(report.meta["totals"]["open"], 1);
    EXPECT_EQ(marker_counters(report)["open"], 1);
}

TEST_P(Markers, CasesAndPhases) {
    const Report report = run("cases", "3");
    Strings expected;
    for (int i = 0; i < 3; ++i) {
        const std::string key = "tests/test_x.py::test[" + std::to_string(i) + "]|add|cpu|";
        for (const char* row : {"cold|call 1", "warm|call 5", "other|call 1", "warm|end_to_end 5"})
            expected.push_back(key + row);
    }
    EXPECT_EQ(rows_of(report), expected);
    for (const auto& row : report.rows) {
        if (row["range"] != "end_to_end") continue;
        EXPECT_EQ(row["mean"], 1234.5);
        EXPECT_EQ(row["median"], 1000.25);
    }
    EXPECT_EQ(report.meta["marks"]["sessions"], 1);
    EXPECT_EQ(report.meta["marks"]["scopes_outside_cases"], 3);
    EXPECT_EQ(report.meta["marks"]["scopes_outside_phases"], 9);  // three of `construct`
}

TEST_P(Markers, PhasesComeFromCallsWhereNobodyMarksThem) {
    const Report report = run("plain_cases", "1");
    EXPECT_EQ(rows_of(report), (Strings{"case|||cold|call 4", "case|||cold|construct 2", "case|||warm|call 4"}));
    EXPECT_EQ(report.meta["marks"]["cases_run_more_than_once"], 1);
    EXPECT_EQ(report.meta["marks"]["unreadable_texts"], 0);
}

TEST_P(Markers, TextsOfAnyLength) {
    const Report report = run("long_texts", "1");
    std::vector<std::string> nodeids;
    for (const auto& row : report.rows)
        if (row["metric"] == "inclusive") nodeids.push_back(row["nodeid"]);
    ASSERT_EQ(nodeids.size(), 8u);
    const auto text = [](std::size_t size, std::size_t kept) {
        std::string all = std::to_string(size) + ":";
        all.resize(kept, 'x');
        return kept < size ? all + "…" : all;
    };
    for (std::size_t i = 0; const std::size_t size : {1000u, 423u, 424u, 846u, 54144u, 54145u, 100000u}) {
        EXPECT_EQ(nodeids[i], text(size, std::min<std::size_t>(size, 54144))) << size;
        ++i;
    }
    EXPECT_EQ(nodeids[7], "tests/test_ü.py::test[日本語-\uFFFD]");
    EXPECT_EQ(report.meta["marks"]["cut_texts"], 2);
}

TEST(MarkersOfAProcess, WhatDoesNotBalanceIsCounted) {
    REQUIRE_BPF();
    const Report report = run_scenario("unbalanced", "1", {});
    EXPECT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(rows_of(report), (Strings{"first|add|cpu|cold|call 1", "second|add|cpu|warm|call 1"}));
    EXPECT_EQ(report.meta["marks"]["unbalanced"], 4);
    EXPECT_EQ(report.orphans(), 1u);
}

TEST_P(Markers, ProbesAreTakenAwayForAPause) {
    std::string result;
    const Report report = run("pauses", "1", {}, &result);
    EXPECT_NE(result.find("1 0 0 0 1\n"), std::string::npos) << result;
    EXPECT_EQ(report.sum("call"), 2u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Markers,
                         testing::Values(std::tuple("uprobe_multi", "markers_target"),
                                         std::tuple("perf_event", "markers_target_static")),
                         [](const auto& info) { return std::string(std::get<0>(info.param)); });

TEST(MarkersOfAProcess, PidUnderstandsThem) {
    REQUIRE_BPF();
    Child target({marked_program(), "cases", "2"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", kMap});
    target.release();
    EXPECT_EQ(target.finish(), 0);
    EXPECT_NE(target.output().find("done 1"), std::string::npos);
    const Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.sum("call"), 16u);
    EXPECT_EQ(report.meta["marks"]["cases"], 2);
}

TEST(MarkersOfAProcess, AllProcessesAreUnderstood) {
    REQUIRE_BPF();
    Child target({marked_program(), "cases", "2"});
    target.wait_for_output("ready");
    const std::string output = scratch_file("all.jsonl");
    Child profiler({profiler_path(), "--all", "--probe-map", kMap, "--fields=all", "--output", output});
    profiler.wait_for_error("profiling");
    target.release();
    EXPECT_EQ(target.finish(), 0);
    profiler.signal(SIGINT);
    const Report report = report_of(profiler, output);
    EXPECT_EQ(report.status, 0) << report.messages;
    std::set<std::string> nodeids;
    for (const nlohmann::json& row : report.rows) nodeids.insert(row["nodeid"]);
    EXPECT_EQ(nodeids, (std::set<std::string>{"", "tests/test_x.py::test[0]", "tests/test_x.py::test[1]"}));
}

// Marker ranges are worth a profile although the map finds nothing.
TEST(MarkersOfAProcess, MarkersAlone) {
    REQUIRE_BPF();
    Child target({marked_program(), "ranges", "5"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process())});
    target.release();
    EXPECT_EQ(target.finish(), 0);
    const Report report = profiler.finish();
    EXPECT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(report.sum("outer"), 5u);
}

// Value of a semaphore in the memory of a process.
unsigned semaphore_in(pid_t process, const std::string& file, const std::string& marker) {
    std::string error;
    const auto elf = ElfFile::open(file, error);
    std::uint64_t address = 0;
    for (const UsdtNote& note : elf->usdt_notes())
        if (note.name == marker) address = note.semaphore;
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    std::uint64_t base = UINT64_MAX;
    for (std::string line; std::getline(maps, line);) {
        if (line.find(file) == std::string::npos) continue;
        base = std::min<std::uint64_t>(base, std::stoull(line, nullptr, 16));
    }
    std::ifstream memory("/proc/" + std::to_string(process) + "/mem", std::ios::binary);
    memory.seekg(static_cast<std::streamoff>(base + address));
    unsigned short value = 0xffff;
    memory.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
}

TEST(MarkersOfAProcess, AKilledProfilerLeavesNoSemaphoreRaised) {
    REQUIRE_BPF();
    const std::string program = marked_program("markers_target_static");
    Child target({program, "cases", "2"});
    target.wait_for_output("ready");
    for (const char* marker : {"case_begin", "range_begin", "probed"})
        EXPECT_EQ(semaphore_in(target.process(), program, marker), 0u) << marker;
    {
        Child profiler({profiler_path(), "--pid", std::to_string(target.process()), "--probe-map", kMap});
        profiler.wait_for_error("profiling");
        for (const char* marker : {"case_begin", "range_begin", "probed"})
            EXPECT_EQ(semaphore_in(target.process(), program, marker), 1u) << marker;
        profiler.signal(SIGKILL);
        profiler.finish();
    }
    for (const char* marker : {"case_begin", "range_begin", "probed"})
        EXPECT_EQ(semaphore_in(target.process(), program, marker), 0u) << marker;
    target.release();
    EXPECT_EQ(target.finish(), 0);
    EXPECT_NE(target.output().find("done 0"), std::string::npos);
}

// The markers are ordinary USDT probes: bpftrace finds them by their notes, and reads their arguments.
TEST(MarkersOfAProcess, BpftraceReadsThem) {
    REQUIRE_BPF();
    Child target({marked_program("markers_target_static"), "cases", "2"});
    target.wait_for_output("ready");
    const std::string usdt = "usdt:" + marked_program("markers_target_static") + ":hostrange:";
    Child tracer({"bpftrace", "-B", "line", "-p", std::to_string(target.process()), "-e",
                  "BEGIN { printf(\"attached\\n\"); } " + usdt +
                      "case_begin { printf(\"case %d %s %s %s\\n\", arg0, str(arg1), str(arg2), str(arg3)); } " + usdt +
                      "measurement { printf(\"measured %s %d %d %d\\n\", str(arg0), arg1, arg2, arg3); }"});
    tracer.wait_for_output("attached");
    target.release();
    EXPECT_EQ(target.finish(), 0);
    tracer.wait_for_output("case 1 tests/test_x.py::test[0] add cpu");
    tracer.wait_for_output("measured end_to_end 5 1235 1000");
    tracer.wait_for_output("case 2 tests/test_x.py::test[1] add cpu");
    tracer.signal(SIGINT);
    tracer.finish();
}

TEST(MarkerNotes, ReadelfShowsThem) {
    Child readelf({"readelf", "-n", "-W", marked_program("markers_target_static")});
    EXPECT_EQ(readelf.finish(), 0);
    const std::string& text = readelf.output();
    for (const char* wanted :
         {"Provider: hostrange", "Name: case_begin", "Arguments: 8@%rdi 8@%rsi 8@%rdx 8@%rcx", "Name: measurement"})
        EXPECT_NE(text.find(wanted), std::string::npos) << wanted;
}

}  // namespace
}  // namespace hostrange::test
