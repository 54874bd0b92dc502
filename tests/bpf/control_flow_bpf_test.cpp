// SPDX-License-Identifier: Apache-2.0
// Ways of entering and leaving functions that break a stack of scopes kept by order. For each: the target's result is
// the same probed and unprobed, and every scope is accounted for.
#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

struct Expected {
    std::string range;
    std::uint64_t entries;
    std::uint64_t exits;
    std::uint64_t by_exception = 0;
    std::uint64_t abandoned = 0;
};

struct Case {
    std::string name;
    std::vector<std::string> target;  // program, mode, repetitions, ...
    std::vector<Expected> expected;
    std::uint64_t overflow = 0;
    std::uint64_t orphans = 0;  // of calls on stacks that cannot be told apart
    // Where a scope ends by exception but is noticed by a later entry first, only the sum of both is certain.
    bool only_unwound_sum = false;
    std::vector<std::string> options = {};
    bool memory_changes = false;  // another thread maps and unmaps memory meanwhile
    std::uint64_t trees = 0;      // 0: not looked at
};

std::ostream& operator<<(std::ostream& stream, const Case& one) {
    return stream << one.name;
}

class ControlFlow : public testing::TestWithParam<Case> {};

TEST_P(ControlFlow, EveryScopeIsAccountedFor) {
    REQUIRE_BPF();
    const Case& one = GetParam();
    std::vector<std::string> command = one.target;
    command[0] = target_path("hard_case_" + command[0]);
    if (one.memory_changes) command.insert(command.begin(), {"/usr/bin/env", "TARGET_CHANGES_MEMORY=1"});

    std::string result;
    const Report report = profile_target(command, one.options, result);
    EXPECT_EQ(result, unprobed_result(command));
    ASSERT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
    EXPECT_EQ(report.lost(), 0u) << report.meta.at("lost").dump();
    EXPECT_EQ(report.orphans(), one.orphans);
    EXPECT_EQ(report.meta.at("totals").at("overflow").get<std::uint64_t>(), one.overflow);
    // Rows in which scopes are missing say so.
    for (const nlohmann::json& row : report.rows) {
        const RangeCounters counters = report.counters(row.at("range"));
        const bool was_taken_for_dead = counters.abandoned != 0 && one.orphans != 0;
        EXPECT_EQ(row.at("exact_count"), counters.overflow == 0 && !was_taken_for_dead) << row.dump();
    }
    if (one.trees) {
        EXPECT_EQ(report.meta.at("totals").at("trees").get<std::uint64_t>(), one.trees);
    }
    for (const Expected& expected : one.expected) {
        const RangeCounters counters = report.counters(expected.range);
        EXPECT_EQ(counters.entries, expected.entries) << expected.range;
        EXPECT_EQ(counters.exits, expected.exits) << expected.range;
        if (!one.only_unwound_sum) {
            EXPECT_EQ(counters.by_exception, expected.by_exception) << expected.range;
            EXPECT_EQ(counters.abandoned, expected.abandoned) << expected.range;
        }
        EXPECT_EQ(counters.open, 0u) << expected.range;
        EXPECT_EQ(counters.by_exception + counters.abandoned, expected.by_exception + expected.abandoned)
            << expected.range;
        // The rows agree with the kernel's counters.
        EXPECT_EQ(report.sum(expected.range), expected.exits) << expected.range;
        EXPECT_EQ(report.sum(expected.range, "unwound"), expected.by_exception + expected.abandoned) << expected.range;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Exceptions, ControlFlow,
    testing::Values(
        Case{"ThroughAll",
             {"exceptions", "through_all", "20000"},
             {{"outer", 20000, 10000, 10000}, {"middle", 20000, 10000, 10000}, {"inner", 20000, 10000, 10000}}},
        Case{"CaughtInOuter",
             {"exceptions", "caught_in_outer", "1000"},
             {{"catching_outer", 1000, 1000}, {"middle", 1000, 500, 500}, {"inner", 1000, 500, 500}}},
        Case{"Rethrow",
             {"exceptions", "rethrow", "1000"},
             {{"catching_outer", 1000, 1000},
              {"rethrowing_middle", 1000, 500, 500},
              {"inner", 1000, 500, 500},
              {"leaf", 500, 500}}},
        Case{"Retry", {"exceptions", "retry", "500"}, {{"retrying_outer", 500, 500}, {"inner", 1500, 500, 1000}}},
        Case{"DeepCatch",
             {"exceptions", "deep_catch", "500"},
             {{"catching_outer", 500, 500},
              {"enclosing_middle", 500, 500},
              {"swallowing_inner", 500, 500},
              {"thrower", 500, 0, 500},
              {"leaf", 500, 500}}},
        Case{"Nested",
             {"exceptions", "nested", "500"},
             {{"catching_outer", 500, 500},
              {"nesting_middle", 500, 500},
              {"thrower", 1000, 0, 1000},
              {"leaf", 500, 500}}},
        Case{.name = "Cleanup",
             .target = {"exceptions", "cleanup", "500"},
             .expected = {{"catching_outer", 500, 500},
                          {"guarded_middle", 500, 250, 250},
                          {"inner", 500, 250, 250},
                          {"cleanup", 500, 500},
                          {"thrower", 500, 0, 500}},
             .only_unwound_sum = true},
        Case{"StaticLibrary",
             {"exceptions_static", "through_all", "1000"},
             {{"outer", 1000, 500, 500}, {"middle", 1000, 500, 500}, {"inner", 1000, 500, 500}}},
        Case{"OutOfACoroutine",
             {"coroutine", "exception", "200", "5"},
             {{"consume", 1000, 800, 200}, {"produce", 1000, 800, 200}}},
        Case{"OutOfALongTree",
             {"deep_tree", "thrown", "5", "1000"},
             {{"throwing_outer", 5, 0, 5}, {"inner", 5000, 5000}}}),
    [](const auto& info) { return info.param.name; });

// The kernel does not say then which memory area an address lies in.
INSTANTIATE_TEST_SUITE_P(WhileMemoryChanges, ControlFlow,
                         testing::Values(Case{.name = "ThroughAll",
                                              .target = {"exceptions", "through_all", "20000"},
                                              .expected = {{"outer", 20000, 10000, 10000},
                                                           {"middle", 20000, 10000, 10000},
                                                           {"inner", 20000, 10000, 10000}},
                                              .memory_changes = true,
                                              .trees = 20000},
                                         Case{.name = "CaughtInOuter",
                                              .target = {"exceptions", "caught_in_outer", "4000"},
                                              .expected = {{"catching_outer", 4000, 4000},
                                                           {"middle", 4000, 2000, 2000},
                                                           {"inner", 4000, 2000, 2000}},
                                              .memory_changes = true,
                                              .trees = 4000},
                                         Case{.name = "Longjmp",
                                              .target = {"longjmp", "to_caller", "4000"},
                                              .expected = {{"outer", 4000, 2000, 0, 2000},
                                                           {"middle", 4000, 2000, 0, 2000},
                                                           {"inner", 4000, 2000, 0, 2000}},
                                              .memory_changes = true,
                                              .trees = 4000}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Points, ControlFlow,
    testing::Values(
        Case{"Straight",
             {"points", "straight", "400"},
             {{"working", 400, 400}, {"prepare", 400, 400}, {"search", 400, 400}}},
        Case{"ThrownBefore",
             {"points", "thrown_before", "400"},
             {{"working", 400, 200, 200}, {"prepare", 400, 200, 200}, {"search", 200, 200}}},
        Case{"ThrownBetween",
             {"points", "thrown_between", "400"},
             {{"working", 400, 200, 200}, {"prepare", 400, 400}, {"search", 400, 200, 200}}},
        Case{"BegunTwice",
             {"points", "begun_twice", "400"},
             {{"working", 400, 400}, {"prepare", 400, 400}, {"search", 800, 400, 0, 400}}},
        Case{"EndedAlone", {"points", "ended_alone", "400"}, {{"working", 400, 400}, {"search", 0, 0}}},
        Case{"LeftOpen", {"points", "left_open", "400"}, {{"working", 400, 400}, {"search", 400, 0, 0, 400}}},
        Case{"Nested",
             {"points", "nested", "400"},
             {{"working", 800, 800}, {"prepare", 800, 800}, {"search", 800, 800}}},
        Case{"Inlined", {"points", "inlined", "400"}, {{"inlined", 1200, 1200}}},
        Case{"InlinedThrows", {"points", "inlined_throws", "400"}, {{"inlined", 800, 600, 200}}},
        Case{"InlinedEscapes", {"points", "inlined_escapes", "400"}, {{"inlined", 400, 200, 200}}}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Jumps, ControlFlow,
    testing::Values(
        Case{"LongjmpToOuter",
             {"longjmp", "to_outer", "1000"},
             {{"setjmp_outer", 1000, 1000}, {"middle", 1000, 500, 0, 500}, {"inner", 1000, 500, 0, 500}}},
        Case{"LongjmpToCaller",
             {"longjmp", "to_caller", "1000"},
             {{"outer", 1000, 500, 0, 500}, {"middle", 1000, 500, 0, 500}, {"inner", 1000, 500, 0, 500}}},
        Case{"TailCallInFile",
             {"tail_calls", "same_file", "500"},
             {{"outer", 500, 500}, {"front", 500, 500}, {"back", 500, 500}}},
        Case{"TailCallThroughPlt",
             {"tail_calls", "plt", "500"},
             {{"outer", 500, 500}, {"remote_front", 500, 500}, {"remote_back", 500, 500}}},
        Case{"TailCallChain",
             {"tail_calls", "chain", "500"},
             {{"outer", 500, 500}, {"chain_first", 500, 500}, {"chain_second", 500, 500}, {"chain_third", 500, 500}}},
        Case{"TailCallConditional",
             {"tail_calls", "conditional", "500"},
             {{"outer", 500, 500}, {"conditional_front", 500, 500}, {"back", 250, 250}}},
        Case{"TailCallMutual",
             {"tail_calls", "mutual", "200", "5"},
             {{"outer", 200, 200}, {"ping", 600, 600}, {"pong", 600, 600}}},
        Case{"TailCallException",
             {"tail_calls", "exception", "500"},
             {{"catching_outer", 500, 500}, {"throwing_front", 500, 250, 250}, {"throwing_back", 500, 250, 250}}},
        Case{"TailCallUnprobedThrows", {"tail_calls", "unprobed", "500"}, {{"bare_front", 500, 250, 250}}}),
    [](const auto& info) { return info.param.name; });

// A uretprobe of a function that jumps away fires when what it jumped to returns.
std::vector<Case> tail_calls_by_uretprobe() {
    const std::vector<std::string> options = {"--return-probes=uretprobe"};
    return {Case{.name = "InFile",
                 .target = {"tail_calls", "same_file", "500"},
                 .expected = {{"outer", 500, 500}, {"front", 500, 500}, {"back", 500, 500}},
                 .options = options},
            Case{.name = "ThroughPlt",
                 .target = {"tail_calls", "plt", "500"},
                 .expected = {{"outer", 500, 500}, {"remote_front", 500, 500}, {"remote_back", 500, 500}},
                 .options = options},
            Case{.name = "Chain",
                 .target = {"tail_calls", "chain", "500"},
                 .expected = {{"outer", 500, 500},
                              {"chain_first", 500, 500},
                              {"chain_second", 500, 500},
                              {"chain_third", 500, 500}},
                 .options = options},
            Case{.name = "Conditional",
                 .target = {"tail_calls", "conditional", "500"},
                 .expected = {{"outer", 500, 500}, {"conditional_front", 500, 500}, {"back", 250, 250}},
                 .options = options},
            Case{.name = "Mutual",
                 .target = {"tail_calls", "mutual", "200", "5"},
                 .expected = {{"outer", 200, 200}, {"ping", 600, 600}, {"pong", 600, 600}},
                 .options = options}};
}

INSTANTIATE_TEST_SUITE_P(TailCallsByUretprobe, ControlFlow, testing::ValuesIn(tail_calls_by_uretprobe()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Depth, ControlFlow,
    testing::Values(Case{"Shallow", {"recursion", "descend", "20", "100"}, {{"recurse", 2000, 2000}}},
                    Case{.name = "TwoHundred",
                         .target = {"recursion", "descend", "20", "200"},
                         .expected = {{"recurse", 20 * 128, 20 * 128}},
                         .overflow = 20 * 72},
                    Case{.name = "TwoHundredMutual",
                         .target = {"recursion", "mutual", "20", "200"},
                         .expected = {{"recurse_odd", 20 * 64, 20 * 64}, {"recurse_even", 20 * 64, 20 * 64}},
                         .overflow = 20 * 72},
                    Case{.name = "TwoHundredUnwound",
                         .target = {"recursion", "unwind", "20", "200"},
                         .expected = {{"recurse_throwing", 20 * 128, 0, 20 * 128}},
                         .overflow = 20 * 72},
                    Case{"LongTree", {"deep_tree", "flat", "5", "1000"}, {{"outer", 5, 5}, {"inner", 5000, 5000}}},
                    Case{"LongTreeOfTwoLevels",
                         {"deep_tree", "two_levels", "5", "1000"},
                         {{"nesting_outer", 5, 5}, {"middle", 500, 500}, {"inner", 4500, 4500}}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Threads, ControlFlow,
    testing::Values(
        Case{"Return", {"threads", "returns", "200"}, {{"outer", 200, 200}, {"middle", 200, 200}, {"inner", 200, 200}}},
        Case{"PthreadExit",
             {"threads", "pthread_exit", "100"},
             {{"outer", 100, 0, 0, 100}, {"middle", 100, 0, 0, 100}, {"inner", 100, 0, 0, 100}}},
        Case{.name = "PthreadExitCaught",
             .target = {"threads", "pthread_exit_caught", "100"},
             .expected = {{"catching_outer", 100, 0, 0, 100}, {"middle", 100, 0, 100}, {"inner", 100, 0, 100}}},
        Case{"Cancel",
             {"threads", "cancel", "100"},
             {{"outer", 100, 0, 0, 100}, {"middle", 100, 0, 0, 100}, {"inner", 100, 0, 0, 100}}},
        Case{"SystemExit",
             {"threads", "system_exit", "100"},
             {{"outer", 100, 0, 0, 100}, {"middle", 100, 0, 0, 100}, {"inner", 100, 0, 0, 100}}},
        // The process ends with threads in their ranges: their scopes are abandoned with them.
        Case{"LeftOpen",
             {"threads", "left_open", "8"},
             {{"outer", 8, 0, 0, 8}, {"middle", 8, 0, 0, 8}, {"inner", 8, 0, 0, 8}}},
        Case{"ProcessExit",
             {"threads", "process_exit", "1"},
             {{"outer", 1, 0, 0, 1}, {"middle", 1, 0, 0, 1}, {"inner", 1, 0, 0, 1}}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Signals, ControlFlow,
    testing::Values(
        Case{"SameStack",
             {"signals", "same_stack", "300"},
             {{"outer", 300, 300}, {"work", 300, 300}, {"handler_body", 300, 300}}},
        Case{"StackBelow",
             {"signals", "alternate_below", "300"},
             {{"outer", 300, 300}, {"work", 300, 300}, {"handler_body", 300, 300}}},
        Case{"StackAbove",
             {"signals", "alternate_above", "300"},
             {{"outer", 300, 300}, {"work", 300, 300}, {"handler_body", 300, 300}}},
        Case{"Nested",
             {"signals", "nested", "300"},
             {{"outer", 300, 300}, {"work", 300, 300}, {"raising_body", 300, 300}, {"nested_body", 300, 300}}},
        Case{"CatchInHandler",
             {"signals", "catch_in_handler", "300"},
             {{"outer", 300, 300}, {"work", 300, 300}, {"catching_body", 300, 300}, {"thrower", 300, 0, 300}}},
        Case{"Siglongjmp",
             {"signals", "siglongjmp", "300"},
             {{"sigsetjmp_outer", 300, 300}, {"work", 300, 150, 0, 150}, {"jumping_body", 300, 150, 0, 150}}},
        Case{"SiglongjmpFromItsStack",
             {"signals", "siglongjmp_alternate", "300"},
             {{"sigsetjmp_outer", 300, 300}, {"work", 300, 150, 0, 150}, {"jumping_body", 300, 150, 0, 150}}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Stacks, ControlFlow,
    testing::Values(
        Case{"FibersAscending",
             {"fibers", "ascending", "300"},
             {{"outer", 300, 300}, {"first_fiber", 300, 300}, {"second_fiber", 300, 300}, {"inner", 1200, 1200}}},
        Case{"FibersDescending",
             {"fibers", "descending", "300"},
             {{"outer", 300, 300}, {"first_fiber", 300, 300}, {"second_fiber", 300, 300}, {"inner", 1200, 1200}}},
        // Of two stacks in one memory area, the lower one's scopes look dead while the higher one's code runs.
        Case{"FibersInOneAreaAscending",
             {"fibers", "shared_mapping", "300"},
             {{"outer", 300, 300}, {"first_fiber", 300, 300}, {"second_fiber", 300, 300}, {"inner", 1200, 1200}}},
        Case{"FibersInOneAreaDescending",
             {"fibers", "shared_mapping_descending", "300"},
             {{"outer", 300, 300}, {"first_fiber", 300, 300}, {"second_fiber", 300, 300}, {"inner", 1200, 1200}}},
        Case{"FiberPoolInOneArea",
             {"fiber_pool", "one_area", "50"},
             {{"task", 600, 600}, {"jumping", 600, 600}, {"step", 1200, 1200}, {"thrower", 1200, 0, 1200}}},
        Case{"FiberPoolInOwnAreas",
             {"fiber_pool", "own_areas", "50"},
             {{"task", 600, 600}, {"jumping", 600, 600}, {"step", 1200, 1200}, {"thrower", 1200, 0, 1200}}},
        Case{"Coroutine", {"coroutine", "generator", "200", "5"}, {{"consume", 1200, 1200}, {"produce", 1000, 1000}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hostrange::test
