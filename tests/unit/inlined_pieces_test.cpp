// SPDX-License-Identifier: Apache-2.0
// Where inlined calls begin, in functions whose every byte is known. Numbers are offsets into the function.
#include "loader/probes/inlined_pieces.h"

#include <gtest/gtest.h>

#include "tests/unit/fixture_functions.h"

namespace hostrange {
namespace {

using Offsets = std::vector<std::uint64_t>;

struct Found {
    Offsets places;
    std::string doubt, problem;
    InlinedBeginnings all;
};

// An inlined call as debug information describes it.
struct Call {
    std::vector<AddressRange> ranges;
    Offsets beginnings;  // where the line table marks its first statement
    std::uint64_t entry = 0;
    bool marks_statements = true;
    std::vector<std::vector<AddressRange>> repeated = {};
};

class InlinedPieces : public FixtureFunctions {
protected:
    // `others`: where other calls begin.
    Found find(const std::string& name, const Call& call, const Offsets& others = {}) const {
        const std::uint64_t base = group(name).address;
        FunctionReader reader(*file_, KernelNops{});
        const WholeFunction& function = reader.read(group(name));

        InlinedInstance instance{};
        instance.container_address = base;
        for (const AddressRange& range : call.ranges) instance.ranges.push_back({base + range.begin, base + range.end});
        for (const std::uint64_t offset : call.beginnings) instance.beginnings.push_back(base + offset);
        instance.entry = base + call.entry;
        instance.marks_statements = call.marks_statements;
        for (std::vector<AddressRange> ranges : call.repeated) {
            for (AddressRange& range : ranges) range = {base + range.begin, base + range.end};
            instance.repeated.push_back(std::move(ranges));
        }
        std::set<std::uint64_t> all(instance.beginnings.begin(), instance.beginnings.end());
        for (const std::uint64_t offset : others) all.insert(base + offset);

        Found found;
        found.all = find_inlined_beginnings(function, FlowGraph(function), instance, all);
        for (const InlinedBeginning& place : found.all.places) found.places.push_back(place.address - base);
        found.doubt = found.all.doubt;
        found.problem = found.all.problem;
        return found;
    }
};

TEST_F(InlinedPieces, OneInARow) {
    const Found found = find("inlined_row", {{{1, 4}}, {1}});
    EXPECT_EQ(found.places, Offsets{1});
    EXPECT_EQ(found.doubt, "");
    EXPECT_EQ(found.all.pieces.at(0).code.size(), 3u);
    EXPECT_FALSE(found.all.places.at(0).repeats);
}

// What was moved in between is no end of the call, and what comes after no second one.
TEST_F(InlinedPieces, AShortGapIsBridged) {
    const Found found = find("inlined_row", {{{1, 3}, {4, 6}}, {1}});
    EXPECT_EQ(found.places, Offsets{1});
    EXPECT_EQ(found.doubt, "");
    ASSERT_EQ(found.all.pieces.size(), 1u);
    EXPECT_EQ(found.all.pieces[0].code.size(), 5u);
}

TEST_F(InlinedPieces, AGapInWhichAnotherCallBeginsIsNot) {
    const Found found = find("inlined_row", {{{1, 3}, {4, 6}}, {1}}, {3});
    EXPECT_EQ(found.places, Offsets{1});
    ASSERT_EQ(found.all.pieces.size(), 1u);
    EXPECT_EQ(found.all.pieces[0].code.size(), 2u);
}

TEST_F(InlinedPieces, AGapBeforeAnotherBeginningIsNot) {
    const Found found = find("inlined_row", {{{1, 3}, {4, 6}}, {1, 4}});
    EXPECT_EQ(found.places, (Offsets{1, 4}));
    EXPECT_EQ(found.all.pieces.size(), 2u);
    EXPECT_NE(found.doubt.find("taken to begin at 2 places"), std::string::npos) << found.doubt;
}

TEST_F(InlinedPieces, CopiesOnTwoWays) {
    const Found found = find("inlined_either", {{{2, 4}, {5, 7}}, {2, 5}});
    EXPECT_EQ(found.places, (Offsets{2, 5}));
    EXPECT_NE(found.doubt.find("taken to begin at 2 places"), std::string::npos) << found.doubt;
}

// The other way runs code of the call without its first statement: a call that is not counted, perhaps.
TEST_F(InlinedPieces, CodeThatRunsWithoutTheBeginningIsDoubtful) {
    Call call{{{2, 4}, {5, 7}}, {2}};
    EXPECT_EQ(find("inlined_either", call).places, Offsets{2});
    EXPECT_EQ(find("inlined_either", call).doubt, "");  // where statements are marked, straight code was moved there
    call.marks_statements = false;
    EXPECT_EQ(find("inlined_either", call).places, Offsets{2});
    EXPECT_NE(find("inlined_either", call).doubt.find("also run without its beginning"), std::string::npos);
}

TEST_F(InlinedPieces, WithoutLineTableItBeginsWhereItIsSaidTo) {
    const Found found = find("inlined_either", {{{2, 4}, {5, 7}}, {}, 5, false});
    EXPECT_EQ(found.places, Offsets{5});
    EXPECT_NE(found.doubt.find("also run without its beginning"), std::string::npos) << found.doubt;
}

TEST_F(InlinedPieces, ALoopAroundItIsNoneOfItsOwn) {
    const Found around = find("inlined_loop", {{{1, 3}}, {1}});
    EXPECT_EQ(around.places, Offsets{1});
    EXPECT_EQ(around.doubt, "");
    EXPECT_FALSE(around.all.places.at(0).repeats);

    const Found own = find("inlined_loop", {{{1, 5}}, {1}});
    EXPECT_EQ(own.places, Offsets{1});
    EXPECT_TRUE(own.all.places.at(0).repeats);
    EXPECT_NE(own.doubt.find("a loop goes back to where it begins"), std::string::npos) << own.doubt;
}

// The loop's condition comes first; its body, in which the call lies, before that.
TEST_F(InlinedPieces, ABodyThatStandsBeforeItsCondition) {
    const Found found = find("inlined_loop_elsewhere", {{{2, 4}}, {2}});
    EXPECT_EQ(found.places, Offsets{2});
    EXPECT_EQ(found.doubt, "");
}

// An optimiser has made one beginning of many, or marked but one of them.
TEST_F(InlinedPieces, CodeThatALoopAroundRepeatsWithoutTheBeginningIsDoubtful) {
    const Found found = find("inlined_before_loop", {{{0, 1}, {2, 3}}, {0}, 0, false}, {1});
    EXPECT_EQ(found.places, Offsets{0});
    EXPECT_NE(found.doubt.find("also run without its beginning"), std::string::npos) << found.doubt;
    // A loop of its own.
    EXPECT_EQ(find("inlined_before_loop", {{{0, 1}, {2, 6}}, {0}, 0, false}, {1}).doubt, "");
}

// One load for two calls on two ways: the first one's, the debug information says.
TEST_F(InlinedPieces, ABeginningThatAnotherCallSharesIsDoubtful) {
    const Call call{{{0, 1}, {3, 4}}, {0}};
    EXPECT_EQ(find("inlined_shared", call).doubt, "");
    const Found found = find("inlined_shared", call, {5});
    EXPECT_EQ(found.places, Offsets{0});
    EXPECT_NE(found.doubt.find("may be that of another call, too"), std::string::npos) << found.doubt;
}

TEST_F(InlinedPieces, ASecondWayInIsDoubtful) {
    const Found found = find("inlined_side_door", {{{2, 5}}, {2}});
    EXPECT_EQ(found.places, Offsets{2});
    EXPECT_NE(found.doubt.find("also entered at"), std::string::npos) << found.doubt;
}

TEST_F(InlinedPieces, RepeatedCodeInALoopIsDoubtful) {
    const Call call{{{1, 3}}, {}, 1, false, {{{1, 2}, {2, 3}}}};
    EXPECT_NE(find("inlined_loop", call).doubt.find("there several times"), std::string::npos);
    // Without a loop it may be one statement that was spread out.
    EXPECT_EQ(find("inlined_row", call).doubt, "");
}

TEST_F(InlinedPieces, CodeThatNothingLeadsTo) {
    const Found found = find("inlined_after_end", {{{1, 3}}, {1}});
    EXPECT_EQ(found.places, Offsets{});
    EXPECT_EQ(found.problem, "no instruction of the function leads to its code");
}

}  // namespace
}  // namespace hostrange
