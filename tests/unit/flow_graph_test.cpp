// SPDX-License-Identifier: Apache-2.0
// What leads where in the functions of real programs, against what objdump prints of them.
#include "loader/probes/flow_graph.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tests/matrix.h"

namespace hostrange::test {
namespace {

constexpr std::size_t kMostInstructions = 80;  // of a function for brute force

struct Line {
    std::uint64_t address;
    std::string mnemonic;
    std::uint64_t target;  // of a direct jump; 0: none
};

std::map<std::uint64_t, Line> disassembly_of(const std::string& program) {
    const std::string command = "objdump --disassemble --wide --no-show-raw-insn -M intel " + program;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::map<std::uint64_t, Line> lines;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe.get())) {
        unsigned long address = 0, target = 0;
        char word[32], rest[4096] = "";
        if (std::sscanf(buffer, " %lx:\t%31s %4095[^\n]", &address, word, rest) < 2) continue;
        std::string mnemonic = word;
        // "bnd jmp", "notrack jmp": the prefix is of no account.
        if (mnemonic == "bnd" || mnemonic == "notrack" || mnemonic == "repz" || mnemonic == "rep") {
            char second[32] = "", after[4096] = "";
            std::sscanf(rest, "%31s %4095[^\n]", second, after);
            const std::string text = second;
            if (text.starts_with("j") || text.starts_with("ret") || text.starts_with("call")) {
                mnemonic = text;
                std::snprintf(rest, sizeof rest, "%s", after);
            }
        }
        int length = 0;
        const bool is_direct = mnemonic.starts_with("j") && std::sscanf(rest, "%lx%n", &target, &length) == 1 &&
                               (rest[length] == ' ' || rest[length] == 0);
        lines[address] = {address, mnemonic, is_direct ? target : 0};
    }
    return lines;
}

// Without what an exception does.
std::set<std::uint64_t> successors_by_objdump(const std::map<std::uint64_t, Line>& lines, std::uint64_t address) {
    const auto at = lines.find(address);
    std::set<std::uint64_t> result;
    const std::string& mnemonic = at->second.mnemonic;
    const bool ends =
        mnemonic.starts_with("ret") || mnemonic.starts_with("jmp") || mnemonic == "hlt" || mnemonic == "ud2";
    if (!ends && std::next(at) != lines.end()) result.insert(std::next(at)->first);
    if (at->second.target != 0) result.insert(at->second.target);
    return result;
}

class FlowGraphOf : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        const std::string program = matrix_program(GetParam());
        std::string error;
        file_ = ElfFile::open(program, error);
        ASSERT_TRUE(file_) << error;
        lines_ = disassembly_of(program);
        reader_ = std::make_unique<FunctionReader>(*file_, KernelNops{});
        groups_ = group_functions(*file_);
    }

    template <typename Check>
    void for_each_function(const Check& check) {
        unsigned count = 0;
        for (const FunctionGroup& group : groups_) {
            const WholeFunction& function = reader_->read(group);
            if (!function.flow.problem().empty()) continue;
            check(function, FlowGraph(function));
            ++count;
        }
        EXPECT_GT(count, 20u);
    }

    std::unique_ptr<ElfFile> file_;
    std::map<std::uint64_t, Line> lines_;
    std::unique_ptr<FunctionReader> reader_;
    std::vector<FunctionGroup> groups_;
};

TEST_P(FlowGraphOf, SuccessorsAreThoseThatObjdumpShows) {
    for_each_function([&](const WholeFunction& function, const FlowGraph& graph) {
        std::set<std::uint64_t> landings;
        for (const LandingPad& pad : function.landing_pads) landings.insert(pad.address);
        for (const FlowInstruction& instruction : function.flow.instructions()) {
            ASSERT_TRUE(lines_.contains(instruction.address)) << std::hex << instruction.address;
            const std::vector<std::uint64_t> found = graph.successors(instruction);
            std::set<std::uint64_t> expected = successors_by_objdump(lines_, instruction.address);
            // A call before a landing pad is one that never returns.
            if (instruction.kind == FlowInstruction::Kind::kCall && landings.contains(instruction.end()))
                expected.clear();
            EXPECT_EQ(std::set<std::uint64_t>(found.begin(), found.end()), expected)
                << std::hex << instruction.address << " " << lines_.at(instruction.address).mnemonic;
        }
    });
}

// The same by brute force: steps are taken until none leads to anything new.
TEST_P(FlowGraphOf, ReachedAndLoopsAreWhatSingleStepsGive) {
    unsigned loops = 0;
    for_each_function([&](const WholeFunction& function, const FlowGraph& graph) {
        const auto& instructions = function.flow.instructions();
        if (instructions.size() > kMostInstructions) return;
        const FlowGraph::Inside everywhere = [](std::uint64_t) { return true; };
        const auto closure_of = [&](std::set<std::uint64_t> reached) {
            for (bool grows = true; grows;) {
                grows = false;
                for (const FlowInstruction& instruction : instructions) {
                    if (!reached.contains(instruction.address)) continue;
                    for (const std::uint64_t next : graph.successors(instruction))
                        if (function.flow.at(next) != nullptr) grows |= reached.insert(next).second;
                }
            }
            return reached;
        };
        for (const FlowInstruction& instruction : instructions) {
            std::set<std::uint64_t> next;
            for (const std::uint64_t one : graph.successors(instruction))
                if (function.flow.at(one) != nullptr) next.insert(one);
            const std::set<std::uint64_t> behind = closure_of(next);
            EXPECT_EQ(graph.reached({next.begin(), next.end()}, everywhere), behind);
            EXPECT_EQ(graph.is_on_loop(instruction.address, everywhere), behind.contains(instruction.address));
            loops += behind.contains(instruction.address);
        }
    });
    EXPECT_GT(loops, 10u);
}

// An instruction that something outside leads to is entered; without an outside, only where the function begins, where
// a table leads, and where nothing leads that the code shows.
TEST_P(FlowGraphOf, IsEnteredFromOutside) {
    for_each_function([&](const WholeFunction& function, const FlowGraph& graph) {
        const auto& instructions = function.flow.instructions();
        const FlowGraph::Inside everywhere = [](std::uint64_t) { return true; };
        EXPECT_TRUE(graph.is_entered(function.flow.entry(), everywhere));
        std::map<std::uint64_t, std::set<std::uint64_t>> leads_there;
        for (const FlowInstruction& instruction : instructions)
            for (const std::uint64_t next : graph.successors(instruction))
                leads_there[next].insert(instruction.address);
        for (const FlowInstruction& instruction : instructions) {
            const std::set<std::uint64_t>& from = leads_there[instruction.address];
            const bool is_start = graph.is_entered(instruction.address, everywhere);
            if (instruction.address != function.flow.entry() && !from.empty()) {
                EXPECT_FALSE(is_start);
            }
            for (const std::uint64_t one : from) {
                EXPECT_TRUE(
                    graph.is_entered(instruction.address, [&](std::uint64_t address) { return address != one; }));
                const auto only_from = [&](std::uint64_t address) { return from.contains(address); };
                EXPECT_EQ(graph.is_entered(instruction.address, only_from), is_start);
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Builds, FlowGraphOf,
                         testing::Values("gcc_O0", "gcc_O2", "gcc_O2_cf", "gcc_O3_lto", "clang_O0", "clang_O2",
                                         "clang_O3_cf", "clang_Os_icf"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hostrange::test
