// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/function_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "loader/probes/function_parts.h"
#include "loader/probes/symbol_matching.h"
#include "tests/unit/fixture_functions.h"

namespace hostrange {
namespace {

using Kind = ExitInstruction::Kind;

constexpr KernelNops kKernel = {.optimises_nop5 = true, .emulates_all = true};

class FunctionCodeTest : public FixtureFunctions {
protected:
    std::uint64_t address(const std::string& name) const { return group(name).address; }

    // The function alone, without parts that lie elsewhere.
    FunctionCode decode(const std::string& name) const {
        return decode_parts({{group(name).address, group(name).size}});
    }
    FunctionCode decode_parts(const std::vector<CodePart>& parts) const {
        return read_function_code(ControlFlow::decode(*file_, parts, {}), kKernel);
    }

    // Its ends as "+offset kind": offsets from the entry.
    std::string ends(const std::string& name) const { return ends(decode(name), address(name)); }
    static std::string ends(const FunctionCode& code, std::uint64_t start) {
        std::string text;
        for (const ExitInstruction& exit : code.exits)
            text +=
                "+" + std::to_string(exit.instruction.address - start) + (exit.kind == Kind::kRet ? " ret " : " jump ");
        return text;
    }
};

TEST_F(FunctionCodeTest, FindsEveryKindOfRet) {
    const FunctionCode code = decode("every_ret");
    EXPECT_EQ(code.problem, "");
    EXPECT_EQ(ends("every_ret"), "+4 ret +11 ret +13 ret +16 ret ");
    for (const ExitInstruction& exit : code.exits)
        EXPECT_EQ(exit.instruction.instruction_class, InstructionClass::kSingleStep);
    EXPECT_FALSE(code.entry_is_branch_target);
    EXPECT_FALSE(code.runs_past_end);
    EXPECT_TRUE(code.unresolved_jumps.empty());
}

TEST_F(FunctionCodeTest, EntryMayBeTheEnd) {
    const FunctionCode ret = decode("one_ret");
    EXPECT_EQ(ends("one_ret"), "+0 ret ");
    EXPECT_EQ(ret.entry.instruction.text, "ret");
    const FunctionCode jump = decode("one_jump");
    EXPECT_EQ(ends("one_jump"), "+0 jump ");
    EXPECT_EQ(jump.exits.at(0).jump_target, address("elsewhere"));
    EXPECT_EQ(jump.exits.at(0).instruction.instruction_class, InstructionClass::kEmulated);
}

TEST_F(FunctionCodeTest, FindsTailJumps) {
    EXPECT_EQ(ends("ret_and_jump"), "+6 ret +7 jump ");
    EXPECT_EQ(decode("ret_and_jump").outside_targets, std::vector<std::uint64_t>{address("elsewhere")});

    const FunctionCode plt = decode("jump_through_plt");
    EXPECT_EQ(ends("jump_through_plt"), "+3 jump ");
    EXPECT_EQ(file_->plt_target(plt.exits.at(0).jump_target), "imported_function");

    const FunctionCode got = decode("jump_through_got");
    EXPECT_EQ(ends("jump_through_got"), "+3 jump ");
    EXPECT_EQ(got.exits.at(0).jump_target, 0u);
    EXPECT_EQ(file_->got_target(got.exits.at(0).got_address), "imported_function");

    for (const char* name : {"jump_virtual", "jump_to_register"}) {
        EXPECT_EQ(ends(name), "+3 jump ") << name;
        EXPECT_EQ(decode(name).exits.at(0).jump_target, 0u) << name;
        EXPECT_EQ(decode(name).exits.at(0).got_address, 0u) << name;
    }
    EXPECT_EQ(ends("adjusts_this_and_leaves"), "+7 jump ");
}

TEST_F(FunctionCodeTest, ConditionalJumpsOutAreEndsWhenTaken) {
    const FunctionCode code = decode("conditional_jump_out");
    EXPECT_TRUE(code.unresolved_jumps.empty());
    ASSERT_EQ(code.exits.size(), 2u);
    EXPECT_EQ(code.exits[0].kind, Kind::kTailJump);
    EXPECT_EQ(code.exits[0].instruction.address, address("conditional_jump_out") + 2);
    EXPECT_EQ(code.exits[0].condition, std::optional<unsigned>(5));  // jne
    EXPECT_EQ(code.outside_targets, std::vector<std::uint64_t>{address("elsewhere")});
    EXPECT_FALSE(code.exits[1].condition.has_value());
}

TEST_F(FunctionCodeTest, JumpTablesStayInside) {
    for (const char* name : {"table_of_offsets", "table_of_offsets_notrack", "table_of_offsets_unoptimised",
                             "table_of_addresses", "table_of_addresses_loaded"}) {
        const FunctionCode code = decode(name);
        EXPECT_EQ(code.problem, "") << name;
        EXPECT_EQ(ends(name).find("jump"), std::string::npos) << name;
        EXPECT_FALSE(code.exits.empty()) << name;
        EXPECT_TRUE(code.unresolved_jumps.empty()) << name;
    }
    EXPECT_EQ(decode("table_of_offsets").exits.size(), 2u);
    EXPECT_EQ(decode("jump_with_odd_scale").unresolved_jumps.size(), 1u);
}

TEST_F(FunctionCodeTest, TellsNeverReturningFromRunningOn) {
    for (const char* name : {"calls_and_never_returns", "traps", "turns_forever"}) {
        EXPECT_TRUE(decode(name).exits.empty()) << name;
        EXPECT_FALSE(decode(name).runs_past_end) << name;
    }
    EXPECT_TRUE(decode("runs_on").exits.empty());
    EXPECT_TRUE(decode("runs_on").runs_past_end);
    EXPECT_EQ(ends("ret_and_runs_on"), "+4 ret ");
    EXPECT_TRUE(decode("ret_and_runs_on").runs_past_end);
}

TEST_F(FunctionCodeTest, ClassifiesEntries) {
    const auto entry_class = [&](const char* name) { return decode(name).entry.instruction.instruction_class; };
    EXPECT_EQ(entry_class("entry_nop5"), InstructionClass::kOptimisedNop);
    // The kernel does not patch across pages.
    EXPECT_EQ(address("entry_nop5_across_pages") % 4096, 4093u);
    EXPECT_EQ(entry_class("entry_nop5_across_pages"), InstructionClass::kEmulated);
    for (const char* name : {"entry_nop", "entry_push", "entry_push_r12", "entry_call", "one_jump"})
        EXPECT_EQ(entry_class(name), InstructionClass::kEmulated) << name;
    for (const char* name : {"entry_push_memory", "entry_endbr64", "entry_vmovaps", "one_ret"})
        EXPECT_EQ(entry_class(name), InstructionClass::kSingleStep) << name;
    EXPECT_EQ(decode("entry_push_r12").entry.instruction.text, "push r12");
    EXPECT_EQ(decode("entry_endbr64").entry.instruction.text, "endbr64");
}

TEST_F(FunctionCodeTest, RefusesWhatTheKernelRefuses) {
    // The kernel refuses their first instruction, but not the next one.
    for (const char* name : {"entry_lock", "entry_vpxor", "entry_nop10", "entry_exchange"}) {
        EXPECT_EQ(decode(name).problem, "") << name;
        EXPECT_GT(decode(name).entry.instruction.address, address(name)) << name;
    }
    EXPECT_NE(decode("refused_ret").problem.find("ends it and has a segment prefix"), std::string::npos);
    EXPECT_EQ(decode("nop5_inside").problem, "");
}

TEST_F(FunctionCodeTest, SeesLoopsToTheEntry) {
    EXPECT_TRUE(decode("loop_to_entry").entry_is_branch_target);
    EXPECT_FALSE(decode("turns_forever").entry_is_branch_target);
}

TEST_F(FunctionCodeTest, NoticesThatItMisreads) {
    EXPECT_EQ(decode("jump_past_lock").problem, "");
    // Nothing leads to the data.
    EXPECT_EQ(decode("data_in_code").problem, "");
    EXPECT_EQ(decode("data_in_code").exits.size(), 1u);
    EXPECT_NE(decode("invalid_bytes").problem.find("cannot be decoded"), std::string::npos);
}

TEST_F(FunctionCodeTest, RefusesCodeThatIsNotThere) {
    EXPECT_EQ(decode_parts({{0x10, 16}}).problem, "its code is not in the file");
    EXPECT_EQ(decode_parts({{address("one_ret"), 1 << 20}}).problem, "its code is not in the file");
    EXPECT_EQ(decode_parts({{address("one_ret"), ~std::uint64_t{0}}}).problem, "its code is larger than 4 MiB");
    EXPECT_NE(decode_parts({{address("one_ret"), 0}}).problem, "");
    EXPECT_NE(decode_parts({}).problem, "");
}

TEST_F(FunctionCodeTest, FindsTheEndOfFunctionsWithoutSize) {
    EXPECT_EQ(group("without_size").size, 0u);
    FunctionReader reader(*file_, kKernel);
    const WholeFunction& function = reader.read(group("without_size"));
    EXPECT_TRUE(function.size_is_guess);
    EXPECT_EQ(function.code.problem, "");
    // Not at the padding inside, before the target of a jump; and not past that at the end.
    EXPECT_EQ(ends(function.code, address("without_size")), "+4 ret +19 jump ");
    EXPECT_EQ(ends(reader.read(group("without_size_to_next")).code, address("without_size_to_next")), "+3 ret ");
}

TEST_F(FunctionCodeTest, ReadsColdParts) {
    FunctionReader reader(*file_, kKernel);
    const WholeFunction& jumped = reader.read(group("with_cold_part"));
    ASSERT_EQ(jumped.parts.size(), 2u);
    EXPECT_EQ(jumped.parts[1].address, address("with_cold_part.cold"));
    EXPECT_EQ(jumped.code.exits.size(), 2u);
    EXPECT_TRUE(jumped.code.unresolved_jumps.empty());
    EXPECT_TRUE(jumped.code.outside_targets.empty());
    // Without its part the jump into it is one that leaves.
    EXPECT_TRUE(decode("with_cold_part").exits.at(0).condition.has_value());

    EXPECT_EQ(reader.read(group("with_handler")).code.exits.size(), 2u);

    const WholeFunction& renamed = reader.read(group("renamed_cold_part"));
    ASSERT_EQ(renamed.parts.size(), 2u);
    EXPECT_EQ(renamed.code.exits.size(), 2u);
    EXPECT_TRUE(renamed.code.unresolved_jumps.empty());
}

TEST_F(FunctionCodeTest, KeepsColdPartsOfNamesakesApart) {
    FunctionReader reader(*file_, kKernel);
    std::vector<std::uint64_t> parts;
    for (const FunctionGroup& group : groups_) {
        if (group.symbols.front()->name != "twin") continue;
        const WholeFunction& function = reader.read(group);
        EXPECT_TRUE(function.cold_part_is_ambiguous);
        ASSERT_EQ(function.parts.size(), 2u);
        EXPECT_EQ(function.code.exits.size(), 2u);
        parts.push_back(function.parts[1].address);
    }
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_NE(parts[0], parts[1]);
}

// Whatever the bytes, decoding ends, and each end lies inside the parts.
TEST_F(FunctionCodeTest, SurvivesAnyRange) {
    std::mt19937 random(1);
    const std::uint64_t first = groups_.front().address;
    const std::uint64_t size = *file_->segment_end(first) - first;
    for (int round = 0; round < 5000; ++round) {
        const std::uint64_t start = first + random() % size;
        const CodePart part{start, 1 + random() % 128, round % 2 == 0};
        const FunctionCode code = decode_parts({part, {first + random() % size, 1 + random() % 32}});
        if (!code.problem.empty()) continue;
        EXPECT_GE(code.entry.instruction.address, start);
    }
}

}  // namespace
}  // namespace hostrange
