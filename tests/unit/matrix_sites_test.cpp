// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>

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

// Programs whose debug information, unwinder's tables and code lie. The sanitizers of a Debug build see more than
// crashes.
TEST(DamagedPrograms, GetNoSiteOutsideOfThem) {
    constexpr int kRounds = 120;
    const ProbeMap map = load_probe_map(test::matrix_map());
    for (const std::string build : {"gcc_O2", "gcc_O2_fp", "clang_O2_compressed", "gcc_O2_nop5"}) {
        std::ifstream stream(test::matrix_program(build), std::ios::binary);
        const std::string original(std::istreambuf_iterator<char>(stream), {});
        MappedFile file;
        file.base_name = "matrix_damaged";
        file.path = file.open_path = testing::TempDir() + "matrix_damaged_" + std::to_string(getpid());
        std::mt19937 random(1);
        for (int round = 0; round < kRounds; ++round) {
            std::string bytes = original;
            for (int flips = 1 + round * 4; flips > 0; --flips)
                bytes[64 + random() % (bytes.size() - 64)] ^= static_cast<char>(1u << random() % 8);
            if (round % 10 == 9) bytes.resize(random() % bytes.size());
            std::ofstream(file.open_path, std::ios::binary) << bytes;
            for (const Site& site : plan_file(map, file, {}).sites) ASSERT_LT(site.file_offset, bytes.size());
        }
        unlink(file.open_path.c_str());
    }
}

INSTANTIATE_TEST_SUITE_P(Builds, MatrixSites, testing::ValuesIn(test::matrix_builds()),
                         [](const auto& build) { return build.param; });

}  // namespace
}  // namespace hostrange
