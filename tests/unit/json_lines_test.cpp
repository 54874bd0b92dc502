// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "loader/report/report.h"

namespace hostrange {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::vector<std::string> keys_of(const std::string& line) {
    std::vector<std::string> keys;
    const Json parsed = Json::parse(line);
    for (const auto& [key, value] : parsed.items()) keys.push_back(key);
    return keys;
}

const std::vector<std::string> kUpstreamKeys = {"nodeid", "operator", "backend", "phase", "range",
                                                "metric", "count",    "unit",    "mean",  "median"};

class Reference : public testing::TestWithParam<const char*> {};

TEST_P(Reference, IsWrittenByteForByte) {
    std::ifstream file(std::string(HOSTRANGE_SOURCE_DIR) + "/tests/data/" + GetParam());
    ASSERT_TRUE(file);
    std::size_t count = 0;
    for (std::string line; std::getline(file, line); ++count) {
        const Json parsed = Json::parse(line);
        const auto text = [&](const char* field) { return parsed.at(field).get<std::string>(); };
        const std::string phase = text("phase"), metric = text("metric");
        EXPECT_EQ(upstream_json({.nodeid = text("nodeid"),
                                 .operator_name = text("operator"),
                                 .backend = text("backend"),
                                 .phase = phase,
                                 .range = text("range"),
                                 .metric = metric,
                                 .count = parsed.at("count").get<std::uint64_t>(),
                                 .mean = parsed.at("mean").get<double>(),
                                 .median = parsed.at("median").get<double>()}),
                  line);
    }
    EXPECT_EQ(count, 39u);
}

INSTANTIATE_TEST_SUITE_P(Published, Reference, testing::Values("reference_add.jsonl", "reference_gemm.jsonl"));

std::string mean_text(double mean) {
    const std::string line = upstream_json({.nodeid = "",
                                            .operator_name = "",
                                            .backend = "",
                                            .phase = "warm",
                                            .range = "",
                                            .metric = "self",
                                            .count = 1,
                                            .mean = mean,
                                            .median = 0});
    const std::size_t begin = line.find("\"mean\":") + 7;
    return line.substr(begin, line.find(',', begin) - begin);
}

// Expected texts are what Python 3 prints for these numbers.
TEST(JsonLines, NumbersAreWrittenAsPythonDoes) {
    EXPECT_EQ(mean_text(0), "0.0");
    EXPECT_EQ(mean_text(-0.0), "-0.0");
    EXPECT_EQ(mean_text(1), "1.0");
    EXPECT_EQ(mean_text(-70), "-70.0");
    EXPECT_EQ(mean_text(0.1), "0.1");
    EXPECT_EQ(mean_text(0.0001), "0.0001");
    EXPECT_EQ(mean_text(0.00001), "1e-05");
    EXPECT_EQ(mean_text(42226.333333333336), "42226.333333333336");
    EXPECT_EQ(mean_text(1234567890123456.0), "1234567890123456.0");
    EXPECT_EQ(mean_text(9007199254740993.0), "9007199254740992.0");
    EXPECT_EQ(mean_text(1e15), "1000000000000000.0");
    EXPECT_EQ(mean_text(1e16), "1e+16");
    EXPECT_EQ(mean_text(9223372036854775807.0), "9.223372036854776e+18");
    EXPECT_EQ(mean_text(5e-324), "5e-324");
    EXPECT_EQ(mean_text(1.7976931348623157e308), "1.7976931348623157e+308");
}

TEST(JsonLines, TextIsAsciiAndAlwaysValid) {
    const std::string line = upstream_json({.nodeid = "a\"\\\n\x01\x7f",
                                            .operator_name = "\xc3\xa9\xf0\x9f\x98\x80",
                                            .backend = "\xff!",
                                            .phase = "warm",
                                            .range = "",
                                            .metric = "self",
                                            .count = 0});
    EXPECT_EQ(line,
              R"({"nodeid":"a\"\\\n\u0001\u007f","operator":"\u00e9\ud83d\ude00","backend":"\ufffd!","phase":"warm",)"
              R"("range":"","metric":"self","count":0,"unit":"ns","mean":null,"median":null})");
}

// Two processes, two implementations, both phases.
class Session : public testing::Test {
protected:
    Session() : collector_({{"body", false, {}}, {"construct", true, {}}, {"submit", false, {}}}, 1 << 20) {
        collector_.add_site({0, "add", "", ""});
        collector_.add_site({1, "add", "", ""});
        collector_.add_site({2, "add", "cpu", "0"});
        collector_.add_site({2, "add", "cpu", "1"});
        summary_.processes[{7, 1}] = {{7, 1}, "python3", "c0ffee"};
        summary_.lost_by_range[2] = 5;
    }

    void call(ProcessKey process, std::uint32_t submit_site, std::uint64_t duration_ns, bool is_cold = false,
              std::uint32_t ending = HOSTRANGE_ENDED_BY_EXIT) {
        CallTree tree;
        tree.process = process;
        tree.thread_id = process.process_id;
        if (is_cold) tree.scopes.push_back({1, 3, 1, 0, 0, 1});
        tree.scopes.push_back({submit_site, 2, 1, ending, 0, duration_ns / 2});
        tree.scopes.push_back({0, 1, 0, 0, 0, duration_ns});
        collector_.add_tree(tree);
    }

    Collector collector_;
    SessionSummary summary_;
};

TEST_F(Session, UpstreamRowsPutProcessesAndImplementationsTogether) {
    call({7, 1}, 2, 100);
    call({8, 2}, 2, 200);
    call({8, 2}, 3, 301);
    call({8, 2}, 3, 1000, true);
    const std::vector<std::string> lines = lines_of(json_lines(collector_, summary_, Fields::kUpstream));
    ASSERT_EQ(lines.size(), 10u);
    EXPECT_EQ(lines[0],
              R"({"nodeid":"","operator":"add","backend":"cpu","phase":"cold","range":"body","metric":"inclusive",)"
              R"("count":1,"unit":"ns","mean":1000.0,"median":1000.0})");
    EXPECT_EQ(Json::parse(lines[2])["range"], "construct");
    EXPECT_EQ(lines[6],
              R"({"nodeid":"","operator":"add","backend":"cpu","phase":"warm","range":"body","metric":"inclusive",)"
              R"("count":3,"unit":"ns","mean":200.33333333333334,"median":200.0})");
    EXPECT_EQ(lines[7],
              R"({"nodeid":"","operator":"add","backend":"cpu","phase":"warm","range":"body","metric":"self",)"
              R"("count":3,"unit":"ns","mean":100.33333333333333,"median":100.0})");
    EXPECT_EQ(Json::parse(lines[9])["range"], "submit");
    for (const std::string& line : lines) EXPECT_EQ(keys_of(line), kUpstreamKeys);
}

TEST_F(Session, AllFieldsTellProcessesAndImplementationsApart) {
    call({7, 1}, 2, 100);
    call({7, 1}, 2, 200);
    call({7, 1}, 2, 200, false, HOSTRANGE_ENDED_BY_EXCEPTION);
    call({8, 2}, 3, 300);
    const std::vector<std::string> lines = lines_of(json_lines(collector_, summary_, Fields::kAll));
    ASSERT_EQ(lines.size(), 8u);
    std::vector<std::string> keys = kUpstreamKeys;
    for (const char* key : {"pid",
                            "process_start_ns",
                            "comm",
                            "container",
                            "implementation",
                            "threads",
                            "min",
                            "max",
                            "p90",
                            "p99",
                            "stddev",
                            "raw_mean",
                            "raw_median",
                            "correction",
                            "uncertainty",
                            "lost",
                            "unwound",
                            "exact_quantiles",
                            "exact_count",
                            "low_confidence"}) {
        keys.push_back(key);
    }
    for (const std::string& line : lines) EXPECT_EQ(keys_of(line), keys);
    EXPECT_EQ(lines[2],
              R"({"nodeid":"","operator":"add","backend":"cpu","phase":"warm","range":"submit","metric":"inclusive",)"
              R"("count":2,"unit":"ns","mean":75.0,"median":75.0,"pid":7,"process_start_ns":1,"comm":"python3",)"
              R"("container":"c0ffee","implementation":"0","threads":1,"min":50.0,"max":100.0,"p90":100.0,)"
              R"("p99":100.0,"stddev":25.0,"raw_mean":75.0,"raw_median":75.0,"correction":null,"uncertainty":null,)"
              R"("lost":5,"unwound":1,)"
              R"("exact_quantiles":true,"exact_count":true,"low_confidence":null})");
    EXPECT_EQ(Json::parse(lines[4])["pid"], 8);
    summary_.inexact_ranges.insert(2);
    for (const std::string& line : lines_of(json_lines(collector_, summary_, Fields::kAll)))
        EXPECT_EQ(Json::parse(line)["exact_count"], Json::parse(line)["range"] != "submit") << line;
    EXPECT_EQ(Json::parse(lines[4])["comm"], "");
    EXPECT_EQ(Json::parse(lines[4])["implementation"], "1");
}

TEST_F(Session, RowsWithoutSamplesAreInAllFieldsOnly) {
    call({7, 1}, 2, 100, false, HOSTRANGE_ENDED_ABANDONED);
    EXPECT_EQ(lines_of(json_lines(collector_, summary_, Fields::kUpstream)).size(), 2u);
    const std::vector<std::string> lines = lines_of(json_lines(collector_, summary_, Fields::kAll));
    ASSERT_EQ(lines.size(), 4u);
    const Json submit = Json::parse(lines[2]);
    EXPECT_EQ(submit["count"], 0);
    EXPECT_EQ(submit["unwound"], 1);
    for (const char* field : {"mean", "median", "min", "max", "p90", "p99", "stddev", "raw_mean", "raw_median"}) {
        EXPECT_TRUE(submit[field].is_null()) << field;
    }
}

TEST(CorrectedSession, FiguresAreThoseWithoutTheProbes) {
    Collector collector({{.name = "outer", .not_inside = {}}, {.name = "inner", .not_inside = {}}}, 1 << 20, true);
    collector.add_site({0, "add", "cpu", "", {100, 900}});
    collector.add_site({1, "add", "cpu", "", {50, 400}});
    for (const std::uint64_t more : {0, 10}) {
        CallTree tree;
        tree.process = {7, 1};
        tree.scopes = {{.site = 1, .id = 2, .parent = 1, .ending = 0, .start_ns = 0, .duration_ns = 60 + more},
                       {.site = 0, .id = 1, .parent = 0, .ending = 0, .start_ns = 0, .duration_ns = 3500 + more}};
        collector.add_tree(tree);
    }
    SessionSummary summary;
    summary.uncertain_share = 0.05;
    const std::vector<std::string> lines = lines_of(json_lines(collector, summary, Fields::kAll));
    ASSERT_EQ(lines.size(), 4u);
    const Json outer = Json::parse(lines[0]), outer_self = Json::parse(lines[1]), inner = Json::parse(lines[2]);
    EXPECT_EQ(outer["median"], 3005);
    EXPECT_EQ(outer["raw_median"], 3505);
    EXPECT_EQ(outer["correction"], 500);
    EXPECT_EQ(outer["uncertainty"], 25);
    EXPECT_EQ(outer["low_confidence"], false);
    EXPECT_EQ(outer_self["mean"], 2990);
    EXPECT_EQ(inner["mean"], 15);
    EXPECT_EQ(inner["low_confidence"], false);
    EXPECT_EQ(Json::parse(lines_of(json_lines(collector, summary, Fields::kUpstream))[0])["mean"], 3005);

    // Less than nothing is left of it: never without the mark.
    CallTree short_one;
    short_one.process = {8, 1};
    short_one.scopes = {{.site = 1, .id = 1, .parent = 0, .ending = 0, .start_ns = 0, .duration_ns = 40}};
    collector.add_tree(short_one);
    const Json below = Json::parse(lines_of(json_lines(collector, summary, Fields::kAll)).at(4));
    EXPECT_EQ(below["median"], -10);
    EXPECT_EQ(below["low_confidence"], true);
}

TEST_F(Session, NothingMeasuredIsNoLine) {
    EXPECT_EQ(json_lines(collector_, summary_, Fields::kAll), "");
}

}  // namespace
}  // namespace hostrange
