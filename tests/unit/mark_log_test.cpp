// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/mark_log.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "loader/collect/statistics.h"
#include "loader/report/report.h"
#include "loader/report/rows.h"

namespace hostrange {
namespace {

constexpr ProcessKey kProcess{100, 5};

struct Mark {
    std::uint32_t kind;
    std::uint64_t time_ns;
    std::string text = "";
    std::vector<std::uint64_t> numbers = {};
    std::uint32_t thread_id = 100;
    std::uint32_t text_number = 0;
    std::uint32_t flags = 0;
    ProcessKey process = kProcess;
};

std::vector<std::byte> record_of(const Mark& one) {
    hostrange_mark mark{};
    mark.kind = one.kind;
    mark.time_ns = one.time_ns;
    mark.process_id = one.process.process_id;
    mark.process_start_ns = one.process.start_ns;
    mark.thread_id = one.thread_id;
    mark.text_number = one.text_number;
    mark.flags = one.flags;
    mark.text_bytes = one.text.size();
    std::memcpy(mark.text, one.text.data(), one.text.size());
    for (std::size_t i = 0; i < one.numbers.size(); ++i) mark.numbers[i] = one.numbers[i];
    std::vector<std::byte> record(sizeof mark);
    std::memcpy(record.data(), &mark, sizeof mark);
    return record;
}

void begin_case(auto& log, std::uint64_t time_ns, const std::string& nodeid, ProcessKey process = kProcess,
                std::uint32_t thread_id = 100) {
    const auto send = [&](Mark mark) {
        mark.process = process;
        mark.thread_id = thread_id;
        log(mark);
    };
    send({HOSTRANGE_MARK_TEXT, time_ns, nodeid.substr(0, nodeid.size() / 2)});
    send({HOSTRANGE_MARK_TEXT, time_ns, nodeid.substr(nodeid.size() / 2)});
    send({HOSTRANGE_MARK_TEXT, time_ns, "add", {}, 0, HOSTRANGE_MARK_OPERATOR});
    send({HOSTRANGE_MARK_TEXT, time_ns, "cpu", {}, 0, HOSTRANGE_MARK_BACKEND});
    send({HOSTRANGE_MARK_CASE_BEGIN, time_ns, "", {1}});
}

class Log : public testing::Test {
protected:
    void operator()(const Mark& mark) { log_.add(record_of(mark)); }
    std::string nodeid_at(std::uint64_t time_ns) const {
        return log_.cases()[log_.at(kProcess, time_ns).test_case].nodeid;
    }
    MarkLog log_;
    std::function<void(const Mark&)> send_ = [this](const Mark& mark) { log_.add(record_of(mark)); };
};

TEST_F(Log, CasesLastFromBeginToEnd) {
    begin_case(send_, 100, "a::b[c]");
    send_({HOSTRANGE_MARK_CASE_END, 200, "", {1}});
    EXPECT_EQ(nodeid_at(99), "");
    EXPECT_EQ(nodeid_at(100), "a::b[c]");
    EXPECT_EQ(nodeid_at(199), "a::b[c]");
    EXPECT_EQ(nodeid_at(200), "");
    EXPECT_EQ(log_.cases()[1].operator_name, "add");
    EXPECT_EQ(log_.cases()[1].backend, "cpu");
    EXPECT_EQ(log_.losses().unbalanced, 0u);
}

TEST_F(Log, ProcessesAreToldApart) {
    begin_case(send_, 100, "one", {1, 1}, 1);
    begin_case(send_, 100, "other", {1, 2}, 2);  // the same pid, later
    EXPECT_EQ(log_.cases()[log_.at({1, 1}, 150).test_case].nodeid, "one");
    EXPECT_EQ(log_.cases()[log_.at({1, 2}, 150).test_case].nodeid, "other");
    EXPECT_EQ(log_.at({2, 1}, 150).test_case, MarkLog::kNoCase);
}

// Two threads send their marks at once: pieces of texts are kept apart.
TEST_F(Log, TextsBelongToTheirThread) {
    send_({HOSTRANGE_MARK_TEXT, 1, "left", {}, 1, 0, 0, {1, 1}});
    send_({HOSTRANGE_MARK_TEXT, 1, "right", {}, 2, 0, 0, {2, 1}});
    send_({HOSTRANGE_MARK_CASE_BEGIN, 2, "", {1}, 2, 0, 0, {2, 1}});
    send_({HOSTRANGE_MARK_CASE_BEGIN, 2, "", {1}, 1, 0, 0, {1, 1}});
    EXPECT_EQ(log_.cases()[log_.at({1, 1}, 3).test_case].nodeid, "left");
    EXPECT_EQ(log_.cases()[log_.at({2, 1}, 3).test_case].nodeid, "right");
}

TEST_F(Log, MarksOutOfOrderFindTheirPlace) {
    begin_case(send_, 100, "case");
    send_({HOSTRANGE_MARK_PHASE_END, 300, "cold"});
    send_({HOSTRANGE_MARK_PHASE_BEGIN, 200, "cold", {}, 101});
    EXPECT_EQ(log_.at(kProcess, 250).phase, 0u);
    EXPECT_EQ(log_.at(kProcess, 300).phase, MarkLog::kNoPhase);
}

TEST_F(Log, RunsOfACaseAreOne) {
    for (const std::uint64_t time_ns : {100, 200}) {
        begin_case(send_, time_ns, "case");
        send_({HOSTRANGE_MARK_CASE_END, time_ns + 50, "", {1}});
    }
    EXPECT_EQ(log_.cases().size(), 2u);
    EXPECT_EQ(log_.cases()[1].runs, 2u);
    EXPECT_NE(log_.at(kProcess, 120).run, log_.at(kProcess, 220).run);
}

TEST_F(Log, WhatDoesNotBalanceIsCounted) {
    send_({HOSTRANGE_MARK_CASE_END, 10, "", {1}});
    send_({HOSTRANGE_MARK_PHASE_END, 20, "cold"});
    begin_case(send_, 100, "one");
    begin_case(send_, 200, "two");
    send_({HOSTRANGE_MARK_PHASE_BEGIN, 210, "cold"});
    send_({HOSTRANGE_MARK_PHASE_BEGIN, 220, "warm"});
    send_({HOSTRANGE_MARK_PHASE_END, 230, "cold"});
    EXPECT_EQ(log_.losses().unbalanced, 5u);
    EXPECT_EQ(nodeid_at(150), "one");
    EXPECT_EQ(nodeid_at(225), "two");
}

TEST_F(Log, MeasurementsAreExactAndTheLastCounts) {
    begin_case(send_, 100, "case");
    const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
    send_({HOSTRANGE_MARK_MEASUREMENT, 110, "end_to_end", {7, bits(1.5), bits(2.5)}});
    send_({HOSTRANGE_MARK_MEASUREMENT, 120, "end_to_end", {8, bits(140217.05587704974), bits(1e300)}});
    ASSERT_EQ(log_.cases()[1].measurements.size(), 1u);
    const Measurement& measured = log_.cases()[1].measurements[0];
    EXPECT_EQ(measured.count, 8u);
    EXPECT_EQ(measured.mean_ns, 140217.05587704974);
    EXPECT_EQ(measured.median_ns, 1e300);
    EXPECT_EQ(measured.phase, Phase::kWarm);
}

TEST_F(Log, DamagedRecordsAreCounted) {
    log_.add({});
    std::vector<std::byte> record = record_of({HOSTRANGE_MARK_PHASE_BEGIN, 1, "cold"});
    for (const std::size_t offset : {offsetof(hostrange_mark, kind), offsetof(hostrange_mark, text_bytes),
                                     offsetof(hostrange_mark, text_number)}) {
        std::vector<std::byte> damaged = record;
        damaged[offset + 2] = std::byte{0xff};
        log_.add(damaged);
    }
    EXPECT_EQ(log_.losses().malformed, 4u);
    EXPECT_EQ(log_.at(kProcess, 10).phase, MarkLog::kNoPhase);
}

TEST_F(Log, ACutTextEndsAtACharacter) {
    send_({HOSTRANGE_MARK_TEXT, 1, "ab\xe6\x97", {}, 100, 0, HOSTRANGE_MARK_CUT});
    send_({HOSTRANGE_MARK_CASE_BEGIN, 1, "", {1}});
    EXPECT_EQ(nodeid_at(1), "ab…");
    EXPECT_EQ(log_.losses().cut, 1u);
}

// ---- together with call trees

constexpr std::uint32_t kCall = 0, kConstruct = 1;

hostrange_scope scope(std::uint32_t site, std::uint32_t id, std::uint32_t parent, std::uint64_t start_ns,
                      std::uint64_t duration_ns, std::uint32_t name = 0) {
    return {.site = site,
            .id = id,
            .parent = parent,
            .ending = HOSTRANGE_ENDED_BY_EXIT | name << 8,
            .start_ns = start_ns,
            .duration_ns = duration_ns};
}

class Marked : public testing::Test {
protected:
    Marked()
        : collector_({{.name = "call", .cold = false, .not_inside = {}},
                      {.name = "construct", .cold = true, .not_inside = {}}},
                     1 << 20) {
        collector_.add_site({kCall, "add", "cpu", ""});
        collector_.add_site({kConstruct, "add", "cpu", ""});
    }
    void tree(std::vector<hostrange_scope> scopes) {
        CallTree tree;
        tree.process = kProcess;
        tree.thread_id = 100;
        tree.scopes = std::move(scopes);
        collector_.add_tree(tree);
    }
    // "nodeid|operator|phase|range count/self" of the rows of the ten fields.
    std::vector<std::string> rows() const {
        std::vector<std::string> result;
        for (const ReportRow& row : report_rows(collector_, RowDetail::kUpstream)) {
            result.push_back(collector_.marks().cases()[row.key.test_case].nodeid + "|" + row.key.operator_name + "|" +
                             std::string(collector_.marks().phase_name(row.key.phase)) + "|" +
                             collector_.ranges()[row.key.range].name + " " + std::to_string(row.inclusive.count()) +
                             "/" + std::to_string(static_cast<long>(row.self.sum())));
        }
        return result;
    }
    using Rows = std::vector<std::string>;
    Collector collector_;
    std::function<void(const Mark&)> send_ = [this](const Mark& mark) { collector_.add_mark(record_of(mark)); };
};

TEST_F(Marked, RangesOfMarkersHoldCalls) {
    send_({HOSTRANGE_MARK_NAME, 1, "step", {4}});
    tree({scope(0, 2, 1, 10, 30), scope(1, 4, 3, 50, 5), scope(0, 3, 1, 45, 20), scope(9, 1, 0, 5, 100, 4)});
    // Each call has a phase of its own; the range around them is cold only if all are.
    EXPECT_EQ(rows(),
              (Rows{"|add|cold|call 1/15", "|add|cold|construct 1/5", "|add|warm|call 1/30", "|add|warm|step 1/50"}));
}

TEST_F(Marked, ARangeOfTheMapsNameIsThatRange) {
    send_({HOSTRANGE_MARK_NAME, 1, "call", {4}});
    tree({scope(9, 1, 0, 5, 100, 4)});
    EXPECT_EQ(rows(), (Rows{"||warm|call 1/100"}));
}

TEST_F(Marked, TheFirstCallOfARunIsCold) {
    for (const std::uint64_t start : {100, 200}) {
        begin_case(send_, start, "case");
        for (std::uint64_t i = 1; i <= 3; ++i) tree({scope(0, 1, 0, start + 10 * i, 1)});
        send_({HOSTRANGE_MARK_CASE_END, start + 50, "", {1}});
    }
    EXPECT_EQ(rows(), (Rows{"case|add|cold|call 2/2", "case|add|warm|call 4/4"}));
}

// A tree that is committed late belongs to where it began.
TEST_F(Marked, ATreeBelongsToWhereItBegan) {
    begin_case(send_, 100, "one");
    send_({HOSTRANGE_MARK_CASE_END, 200, "", {1}});
    begin_case(send_, 300, "two");
    send_({HOSTRANGE_MARK_CASE_END, 400, "", {1}});
    tree({scope(0, 1, 0, 199, 500)});
    tree({scope(0, 1, 0, 300, 1)});
    EXPECT_EQ(rows(), (Rows{"one|add|cold|call 1/500", "two|add|cold|call 1/1"}));
}

TEST_F(Marked, OnceACaseHasPhasesOnlyTheyCount) {
    begin_case(send_, 100, "case");
    tree({scope(0, 1, 0, 110, 1)});
    send_({HOSTRANGE_MARK_PHASE_BEGIN, 120, "warm"});
    tree({scope(1, 2, 1, 130, 1), scope(0, 1, 0, 130, 2)});  // constructs, and is warm all the same
    send_({HOSTRANGE_MARK_PHASE_END, 140, "warm"});
    tree({scope(0, 1, 0, 150, 1)});
    EXPECT_EQ(rows(), (Rows{"case|add|warm|call 1/1", "case|add|warm|construct 1/1"}));
}

TEST_F(Marked, MeasurementsStandBehindTheRowsOfTheirCase) {
    begin_case(send_, 100, "case");
    tree({scope(0, 1, 0, 110, 7)});
    send_({HOSTRANGE_MARK_MEASUREMENT,
           120,
           "end_to_end",
           {3, std::bit_cast<std::uint64_t>(1.25), std::bit_cast<std::uint64_t>(2.0)}});
    send_({HOSTRANGE_MARK_CASE_END, 130, "", {1}});
    tree({scope(0, 1, 0, 140, 7)});  // in no case
    const std::string lines = json_lines(collector_, {}, Fields::kUpstream);
    EXPECT_EQ(lines,
              R"({"nodeid":"case","operator":"add","backend":"cpu","phase":"cold","range":"call","metric":"inclusive",)"
              R"("count":1,"unit":"ns","mean":7.0,"median":7.0})"
              "\n"
              R"({"nodeid":"case","operator":"add","backend":"cpu","phase":"cold","range":"call","metric":"self",)"
              R"("count":1,"unit":"ns","mean":7.0,"median":7.0})"
              "\n"
              R"({"nodeid":"case","operator":"add","backend":"cpu","phase":"warm","range":"end_to_end",)"
              R"("metric":"inclusive","count":3,"unit":"ns","mean":1.25,"median":2.0})"
              "\n");
}

TEST_F(Marked, TheTableOfASessionEndsWithTheDearestRanges) {
    begin_case(send_, 100, "case");
    tree({scope(1, 2, 1, 130, 30), scope(0, 1, 0, 110, 100)});
    const std::string text = table(collector_, {}, 0, false);
    EXPECT_NE(text.find("dearest ranges, by self time\n"
                        "  call  add | cpu           70 ns   70.0 %\n"
                        "  construct  add | cpu      30 ns   30.0 %\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("1 call tree, 2 scopes in 0.0 s; 1 case\n"), std::string::npos) << text;
}

TEST_F(Marked, AScopeWhoseNameIsUnknownIsCounted) {
    tree({scope(9, 1, 0, 5, 100, 77)});
    EXPECT_EQ(collector_.totals().unknown_site, 1u);
}

}  // namespace
}  // namespace hostrange
