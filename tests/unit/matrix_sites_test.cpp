// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>

#include "loader/probes/plan.h"
#include "tests/matrix.h"

namespace hostrange {
namespace {

// What objdump reads: the mnemonic at each address where it sees an instruction begin.
std::map<std::uint64_t, std::string> disassemble(const std::string& path) {
    const std::string command = "objdump -d --no-show-raw-insn " + path;
    const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
    std::map<std::uint64_t, std::string> result;
    char line[1024];
    while (output && std::fgets(line, sizeof line, output.get())) {
        unsigned long address;
        char mnemonic[64], rest[64] = "";
        const int read = std::sscanf(line, " %lx: %63s %63s", &address, mnemonic, rest);
        if (read < 2) continue;
        std::string text = mnemonic;
        if (text == "bnd" || text == "notrack" || text == "repz" || text == "rep") text = rest;
        result[address] = text;
    }
    return result;
}

class MatrixSites : public testing::TestWithParam<std::string> {};

TEST_P(MatrixSites, StandOnInstructions) {
    const ProbeMap map = load_probe_map(test::matrix_map());
    MappedFile file;
    file.path = file.open_path = test::matrix_program(GetParam());
    file.base_name = "matrix_" + GetParam();
    const std::map<std::uint64_t, std::string> instructions = disassemble(file.path);
    ASSERT_GT(instructions.size(), 100u);
    for (const ReturnProbes returns : {ReturnProbes::kAuto, ReturnProbes::kUretprobe}) {
        PlanSettings settings;
        settings.return_probes = returns;
        settings.kernel = {.optimises_nop5 = true, .emulates_all = true};
        const FilePlan plan = plan_file(map, file, settings);
        ASSERT_EQ(plan.problem, "");
        EXPECT_GT(plan.sites.size(), 50u);
        for (const Site& site : plan.sites) {
            const std::string where = plan.functions[site.function].name + ": " + site.instruction.text;
            const auto found = instructions.find(site.instruction.address);
            ASSERT_NE(found, instructions.end()) << where;
            EXPECT_TRUE(site.kind != SiteKind::kRet || found->second.starts_with("ret")) << where;
            EXPECT_TRUE(site.kind != SiteKind::kTailJump || found->second[0] == 'j') << where;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Builds, MatrixSites, testing::ValuesIn(test::matrix_builds()),
                         [](const auto& build) { return build.param; });

}  // namespace
}  // namespace hostrange
