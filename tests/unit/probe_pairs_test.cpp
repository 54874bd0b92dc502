// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/probe_pairs.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace hostrange {
namespace {

using enum InstructionClass;

// Builds plans site by site; places are file offsets.
class Plan {
public:
    Plan& function(std::uint32_t range = 0) {
        PlannedFunction one;
        one.range = range;
        plan_.functions.push_back(std::move(one));
        return *this;
    }
    Plan& site(SiteKind kind, std::uint64_t place, InstructionClass instruction_class = kSingleStep,
               bool continues = false) {
        Site one;
        one.kind = kind;
        one.function = plan_.functions.size() - 1;
        one.range = plan_.functions.back().range;
        one.file_offset = place;
        one.on_return = kind == SiteKind::kReturn;
        one.continues = continues;
        one.instruction.instruction_class = instruction_class;
        plan_.sites.push_back(std::move(one));
        return *this;
    }
    ScopeProbes probes(std::size_t site = 0) const { return scope_probes_of_plan(plan_).at(site); }

private:
    FilePlan plan_;
};

ProbePair pair(EntryWay entry, EndWay end) {
    return {entry, end};
}

TEST(ScopeProbes, FunctionsByTheirEntryAndEnds) {
    const auto of = [](InstructionClass entry, const auto& add_ends) {
        Plan plan;
        plan.function().site(SiteKind::kEntry, 100, entry);
        add_ends(plan);
        EXPECT_FALSE(plan.probes().shares_entry);
        return plan.probes().pair;
    };
    const auto ret = [](Plan& plan) { plan.site(SiteKind::kRet, 120); };
    EXPECT_EQ(of(kOptimisedNop, ret), pair(EntryWay::kOptimisedNop, EndWay::kRet));
    EXPECT_EQ(of(kEmulated, ret), pair(EntryWay::kEmulated, EndWay::kRet));
    EXPECT_EQ(of(kSingleStep, ret), pair(EntryWay::kSingleStep, EndWay::kRet));
    EXPECT_EQ(of(kEmulated, [](Plan& plan) { plan.site(SiteKind::kReturn, 100); }),
              pair(EntryWay::kEmulated, EndWay::kUretprobe));
    EXPECT_EQ(of(kEmulated, [](Plan& plan) { plan.site(SiteKind::kTailJump, 120, kEmulated, true); }),
              pair(EntryWay::kEmulated, EndWay::kTailJump));
    EXPECT_EQ(
        of(kEmulated,
           [](Plan& plan) { plan.site(SiteKind::kTailJump, 120, kEmulated, true).site(SiteKind::kCalleeEnd, 300); }),
        pair(EntryWay::kEmulated, EndWay::kCallee));
    EXPECT_EQ(of(kEmulated, [](Plan& plan) { plan.site(SiteKind::kTailJump, 120, kEmulated); }),
              pair(EntryWay::kEmulated, EndWay::kJump));
    // Most calls return.
    EXPECT_EQ(of(kEmulated,
                 [](Plan& plan) { plan.site(SiteKind::kTailJump, 110, kEmulated, true).site(SiteKind::kRet, 120); }),
              pair(EntryWay::kEmulated, EndWay::kRet));
}

TEST(ScopeProbes, AFunctionThatIsNothingButAJumpHasOneHit) {
    Plan plan;
    plan.function().site(SiteKind::kEntry, 100, kEmulated).site(SiteKind::kTailJump, 100, kEmulated, true);
    EXPECT_EQ(plan.probes().pair, pair(EntryWay::kLoneJump, EndWay::kTailJump));
}

TEST(ScopeProbes, InlinedCodeTakesSteps) {
    Plan plan;
    plan.function().site(SiteKind::kInlinedEntry, 100, kEmulated).site(SiteKind::kInlinedEnd, 110, kSingleStep);
    plan.function(1).site(SiteKind::kInlinedEntry, 105, kSingleStep).site(SiteKind::kInlinedEnd, 108, kEmulated);
    EXPECT_EQ(plan.probes(0).pair, pair(EntryWay::kStepsEmulated, EndWay::kStepsSingleStep));
    EXPECT_EQ(plan.probes(2).pair, pair(EntryWay::kStepsSingleStep, EndWay::kStepsEmulated));
}

TEST(ScopeProbes, WhatBeginsWhereAnotherEndsSharesItsHit) {
    Plan plan;
    plan.function(0).site(SiteKind::kBegin, 100, kEmulated);
    plan.function(0).site(SiteKind::kEnd, 120, kEmulated);
    plan.function(1).site(SiteKind::kBegin, 120, kEmulated);
    plan.function(1).site(SiteKind::kEnd, 140, kSingleStep);
    EXPECT_EQ(plan.probes(0).pair, pair(EntryWay::kStepsEmulated, EndWay::kStepsEmulated));
    EXPECT_FALSE(plan.probes(0).shares_entry);
    EXPECT_EQ(plan.probes(2).pair, pair(EntryWay::kStepsEmulated, EndWay::kStepsSingleStep));
    EXPECT_TRUE(plan.probes(2).shares_entry);
}

TEST(ScopeProbes, OfTwoThatBeginTogetherOnePays) {
    Plan plan;
    plan.function(0).site(SiteKind::kEntry, 100, kEmulated).site(SiteKind::kRet, 140);
    plan.function(1).site(SiteKind::kBegin, 100, kEmulated);
    plan.function(1).site(SiteKind::kEnd, 120, kEmulated);
    EXPECT_FALSE(plan.probes(0).shares_entry);
    EXPECT_EQ(plan.probes(0).pair, pair(EntryWay::kStepsEmulated, EndWay::kRet));
    EXPECT_TRUE(plan.probes(2).shares_entry);
}

TEST(ScopeProbes, EveryWayHasAName) {
    EXPECT_EQ(entry_way_name(EntryWay::kOptimisedNop), "optimised_nop");
    EXPECT_EQ(entry_way_name(EntryWay::kMarker), "marker");
    EXPECT_EQ(end_way_name(EndWay::kRet), "ret");
    EXPECT_EQ(end_way_name(EndWay::kMarker), "marker");
}

}  // namespace
}  // namespace hostrange
