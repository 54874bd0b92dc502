// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "loader/report/report.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::size_t widest(const std::string& text) {
    std::size_t columns = 0;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) columns = std::max(columns, columns_of(line));
    return columns;
}

bool is_ascii(const std::string& text) {
    return std::all_of(text.begin(), text.end(),
                       [](unsigned char byte) { return byte == '\n' || (byte >= 0x20 && byte < 0x7f); });
}

// binding.body { binding.tensor_conversion, operator.call { operator.invoke } } of two operators.
class Table : public testing::Test {
protected:
    Table()
        : collector_({{"binding.body", false, {}},
                      {"binding.tensor_conversion", false, {}},
                      {"operator.call", false, {}},
                      {"cache.construct", true, {}},
                      {"operator.invoke", false, {}}},
                     1 << 20) {
        for (const char* name : {"add", "mul"}) {
            for (std::uint32_t range = 0; range < 5; ++range) {
                collector_.add_site({range, range == 0 ? name : "", range == 4 ? "cpu" : "", ""});
            }
        }
        summary_.duration_s = 5.02;
        summary_.processes[{1234, 1}] = {{1234, 1}, "python3", ""};
    }

    void call(std::uint32_t which, std::uint64_t unit_ns, bool is_cold = false,
              std::uint32_t ending = HOSTRANGE_ENDED_BY_EXIT, ProcessKey process = {1234, 1}) {
        CallTree tree;
        tree.process = process;
        tree.thread_id = 1234;
        const std::uint32_t first = which * 5;
        tree.scopes = {{first + 1, 2, 1, ending, 0, 40 * unit_ns},
                       {first + 4, 4, 3, 0, 0, 20 * unit_ns},
                       {first + 2, 3, 1, 0, 0, 30 * unit_ns},
                       {first + 0, 1, 0, 0, 0, 100 * unit_ns}};
        if (is_cold) tree.scopes.insert(tree.scopes.begin(), {first + 3, 5, 3, 0, 0, 5 * unit_ns});
        collector_.add_tree(tree);
    }

    Collector collector_;
    SessionSummary summary_;
};

TEST_F(Table, IsReadAtAGlance) {
    call(0, 1'000, true);
    for (int i = 0; i < 1'500; ++i) call(0, 100);
    summary_.warnings = {"raw times: the probes' own cost is included"};
    EXPECT_EQ(table(collector_, summary_, 80, false),
              R"(add | cpu   pid 1234 (python3), 1 thread
  1,501 calls, 15.1 ms of host time

  times in ns                                inclusive                    self
  warm                         count   median     mean  median    mean   share
  binding.body                 1,500   10,000   10,000   3,000   3,000  30.0 %
    binding.tensor_conversion  1,500    4,000    4,000   4,000   4,000  40.0 %
    operator.call              1,500    3,000    3,000   1,000   1,000  10.0 %
      operator.invoke          1,500    2,000    2,000   2,000   2,000  20.0 %

  times in ns                                inclusive                    self
  cold                         count   median     mean  median    mean   share
  binding.body                     1  100,000  100,000  30,000  30,000  30.0 %
    binding.tensor_conversion      1   40,000   40,000  40,000  40,000  40.0 %
    operator.call                  1   30,000   30,000   5,000   5,000   5.0 %
      cache.construct              1    5,000    5,000   5,000   5,000   5.0 %
      operator.invoke              1   20,000   20,000  20,000  20,000  20.0 %

1,501 call trees, 6,005 scopes in 5.0 s
! raw times: the probes' own cost is included
)");
}

TEST(CorrectedTable, SaysHowCertainItIs) {
    Collector collector({{.name = "outer", .not_inside = {}}, {.name = "inner", .not_inside = {}}}, 1 << 20, true);
    collector.add_site({0, "add", "cpu", "", {100, 900}});
    collector.add_site({1, "add", "cpu", "", {50, 400}});
    CallTree tree;
    tree.process = {1234, 1};
    tree.scopes = {{.site = 1, .id = 2, .parent = 1, .ending = 0, .start_ns = 0, .duration_ns = 55},
                   {.site = 0, .id = 1, .parent = 0, .ending = 0, .start_ns = 0, .duration_ns = 3500}};
    collector.add_tree(tree);
    SessionSummary summary;
    summary.uncertain_share = 0.1;
    summary.duration_s = 5;
    EXPECT_EQ(table(collector, summary, 0, false), R"(add | cpu   pid 1234, 1 thread
  1 call, 3.0 us of host time

  times in ns              inclusive                        self
  warm     count  median  +-    mean  median  +-    mean   share
  outer        1   3,000  50   3,000   2,995  45   2,995  99.8 %  ########################
    inner      1       5   5?      5       5   5?      5   0.2 %

1 call tree, 2 scopes in 5.0 s
)");
    // Uncertainties go after the means, and before anything else.
    const std::string narrow = table(collector, summary, 52, false);
    EXPECT_EQ(narrow.find("mean"), std::string::npos);
    EXPECT_NE(narrow.find("5?"), std::string::npos);
    EXPECT_EQ(table(collector, summary, 40, false).find("5?"), std::string::npos);
}

TEST_F(Table, NothingMeasuredIsSaid) {
    summary_.warnings = {"a warning"};
    EXPECT_EQ(table(collector_, summary_, 80, false),
              "No scope ended during the 5.0 s: no probed function returned in that time.\n! a warning\n");
}

TEST_F(Table, FitsTheTerminal) {
    for (int i = 0; i < 100; ++i) call(i % 2, 1'000 + i, i < 2, i == 50 ? HOSTRANGE_ENDED_BY_EXCEPTION : 0);
    summary_.lost_by_range[1] = 3;
    summary_.warnings = {
        "a long warning that has to be wrapped since it does not fit into the width of the terminal at all"};
    for (const bool utf8 : {false, true}) {
        for (unsigned width = 64; width < 200; ++width) {
            ASSERT_LE(widest(table(collector_, summary_, width, utf8)), width) << width;
        }
        EXPECT_TRUE(contains(table(collector_, summary_, 200, utf8), utf8 ? "█" : "#"));
        EXPECT_TRUE(contains(table(collector_, summary_, 0, utf8), utf8 ? "█" : "#"));
        EXPECT_FALSE(contains(table(collector_, summary_, 80, utf8), utf8 ? "█" : "#"));
    }
    for (unsigned width = 0; width < 64; ++width) {
        EXPECT_TRUE(contains(table(collector_, summary_, width, true), "operator")) << width;
    }
    EXPECT_TRUE(is_ascii(table(collector_, summary_, 120, false)));
}

TEST_F(Table, TheDearestComesFirstAndAllAreListedAtTheEnd) {
    call(0, 100);
    call(1, 300);
    const std::string text = table(collector_, summary_, 100, false);
    EXPECT_LT(text.find("mul | cpu"), text.find("add | cpu"));
    EXPECT_TRUE(contains(text, "75.0 % of all"));
    EXPECT_TRUE(contains(text, "host time by operator"));
    EXPECT_LT(text.find("host time by operator"), text.rfind("mul | cpu"));
}

TEST_F(Table, ProcessesHaveBlocksOfTheirOwn) {
    call(0, 100);
    call(0, 100, false, HOSTRANGE_ENDED_BY_EXIT, {99, 5});
    summary_.processes[{99, 5}] = {{99, 5}, "worker", "4f2abc0123456789"};
    const std::string text = table(collector_, summary_, 100, false);
    EXPECT_TRUE(contains(text, "add | cpu   pid 1234 (python3), 1 thread\n"));
    EXPECT_TRUE(contains(text, "add | cpu   pid 99 (worker) in 4f2abc012345, 1 thread\n"));
}

TEST_F(Table, LossesShowOnlyWhenThereAreAny) {
    call(0, 100);
    std::string text = table(collector_, summary_, 100, false);
    EXPECT_FALSE(contains(text, "unwound"));
    EXPECT_FALSE(contains(text, "lost"));
    call(0, 100, false, HOSTRANGE_ENDED_ABANDONED);
    summary_.lost_by_range = {{0, 1'000}, {4, 2}};
    text = table(collector_, summary_, 100, false);
    EXPECT_TRUE(contains(text, "count  unwound"));
    EXPECT_TRUE(contains(text, "2 call trees, 7 scopes in 5.0 s; 1 unwound; 1,002 lost\n"));
    EXPECT_TRUE(contains(text, "lost: binding.body 1,000, operator.invoke 2\n"));
}

TEST_F(Table, ARowWithoutSamplesHasNoTimes) {
    call(0, 100, false, HOSTRANGE_ENDED_ABANDONED);
    const std::string text = table(collector_, summary_, 100, false);
    const std::size_t begin = text.find("    binding.tensor_conversion");
    ASSERT_NE(begin, std::string::npos);
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    EXPECT_TRUE(contains(line, " 0 "));
    EXPECT_TRUE(line.ends_with(" -"));
}

TEST_F(Table, NamesOfTheTargetCannotSpeakToTheTerminal) {
    call(0, 100);
    summary_.processes[{1234, 1}].comm = "a\x1b[31m\xc2\x9b\n";
    summary_.warnings = {"bad\x1b]0;title\x07"};
    const std::string text = table(collector_, summary_, 100, true);
    EXPECT_TRUE(contains(text,
                         "(a?[31m??"
                         "?)"));
    EXPECT_TRUE(contains(text, "! bad?]0;title?\n"));
}

TEST(TableNesting, RecursionAndForeignParentsEnd) {
    Collector collector({{"one", false, {}}, {"two", false, {}}}, 1 << 20);
    collector.add_site({0, "", "", ""});
    collector.add_site({1, "", "", ""});
    CallTree tree;
    tree.scopes = {{0, 3, 2, 0, 0, 1}, {1, 2, 1, 0, 0, 2}, {0, 1, 0, 0, 0, 3}};  // one { two { one } }
    collector.add_tree(tree);
    tree.scopes = {{1, 2, 1, 0, 0, 1}, {0, 3, 2, 0, 0, 1}, {1, 1, 0, 0, 0, 3}};  // two { two { one } }
    collector.add_tree(tree);
    SessionSummary summary;
    const std::string text = table(collector, summary, 80, false);
    EXPECT_TRUE(contains(text, "(no operator)"));
    EXPECT_TRUE(contains(text, "\n  one "));
    EXPECT_TRUE(contains(text, "\n  two "));
}

TEST(TableNesting, RangesAroundEachOtherInOtherBlocksAreBothShown) {
    Collector collector({{"body", false, {}}, {"call", false, {}}}, 1 << 20);
    for (const char* name : {"add", "mul"}) {
        collector.add_site({0, name, "", ""});
        collector.add_site({1, name, "", ""});
    }
    CallTree tree;
    tree.scopes = {{3, 2, 1, 0, 0, 1}, {0, 1, 0, 0, 0, 3}};  // add's body { mul's call }
    collector.add_tree(tree);
    tree.scopes = {{2, 2, 1, 0, 0, 1}, {1, 1, 0, 0, 0, 3}};  // add's call { mul's body }
    collector.add_tree(tree);
    const std::string text = table(collector, {}, 80, false);
    const std::string mul = text.substr(text.find("mul   pid"));
    EXPECT_TRUE(contains(mul.substr(0, mul.find("host time by")), "\n  body "));
    EXPECT_TRUE(contains(mul.substr(0, mul.find("host time by")), "\n  call "));
}

TEST(Text, NumbersForPeople) {
    EXPECT_EQ(with_separators(0), "0");
    EXPECT_EQ(with_separators(999), "999");
    EXPECT_EQ(with_separators(1'000), "1,000");
    EXPECT_EQ(with_separators(UINT64_MAX), "18,446,744,073,709,551,615");
    EXPECT_EQ(with_separators("-123"), "-123");
    EXPECT_EQ(with_separators("-1234567.25"), "-1,234,567.25");
    EXPECT_EQ(counted(1, "scope"), "1 scope");
    EXPECT_EQ(counted(0, "scope"), "0 scopes");
    EXPECT_EQ(scaled(-12), "-12 ns");
    EXPECT_EQ(scaled(1'540), "1.5 us");
    EXPECT_EQ(scaled(20e6), "20.0 ms");
    EXPECT_EQ(scaled(1.96e9), "2.0 s");
    EXPECT_EQ(scaled(1.2345e13), "12,345.0 s");
}

TEST(Text, WrapsBetweenWords) {
    EXPECT_EQ(wrapped("aaa bb cccc", "! ", 8), "! aaa bb\n  cccc\n");
    EXPECT_EQ(wrapped("aaa bb cccc", "! ", 0), "! aaa bb cccc\n");
    EXPECT_EQ(wrapped("averylongword b", "", 5), "averylongword\nb\n");
    EXPECT_EQ(wrapped("", "", 5), "\n");
}

TEST(Text, CutsBetweenCharacters) {
    EXPECT_EQ(shortened("abcdef", 6, false), "abcdef");
    EXPECT_EQ(shortened("abcdef", 4, false), "abc~");
    EXPECT_EQ(shortened("\xc3\xa9\xc3\xa9\xc3\xa9", 2, true), "\xc3\xa9…");
    EXPECT_EQ(padded_left("\xc3\xa9", 3), "  \xc3\xa9");
    EXPECT_EQ(padded_right("\xc3\xa9", 3), "\xc3\xa9  ");
}

TEST(Locale, IsReadFromTheEnvironment) {
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    unsetenv("LANG");
    EXPECT_FALSE(locale_is_utf8());
    setenv("LANG", "de_DE.UTF-8", 1);
    EXPECT_TRUE(locale_is_utf8());
    setenv("LC_CTYPE", "C", 1);
    EXPECT_FALSE(locale_is_utf8());
    setenv("LC_ALL", "C.utf8", 1);
    EXPECT_TRUE(locale_is_utf8());
}

}  // namespace
}  // namespace hostrange
