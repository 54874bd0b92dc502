// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/markers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>

#include "loader/probes/elf_file.h"

namespace hostrange {
namespace {

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
}

// The marker library, or a copy of it in which bytes were changed.
class MarkerLibrary : public testing::Test {
protected:
    void SetUp() override { bytes_ = read(HOSTRANGE_MARKER_LIBRARY); }
    void TearDown() override { unlink(path().c_str()); }
    static std::string path() { return testing::TempDir() + "markers_test." + std::to_string(getpid()) + ".so"; }
    void replace(const std::string& old, const std::string& with) {
        ASSERT_EQ(old.size(), with.size());
        const std::size_t at = bytes_.find(old);
        ASSERT_NE(at, std::string::npos);
        bytes_.replace(at, old.size(), with);
    }
    std::unique_ptr<ElfFile> open() {
        std::ofstream(path(), std::ios::binary) << bytes_;
        std::string error;
        auto file = ElfFile::open(path(), error);
        EXPECT_NE(file, nullptr) << error;
        return file;
    }
    std::uint64_t site_of(const ElfFile& file, const std::string& name) {
        for (const UsdtNote& note : file.usdt_notes())
            if (note.name == name) return file.file_offset(note.address).value();
        return 0;
    }
    std::string bytes_;
};

constexpr KernelNops kOld{}, kNop5{.optimises_nop5 = true, .emulates_all = true},
    kNop10{.optimises_nop10 = true, .emulates_all = true};

TEST_F(MarkerLibrary, HasEveryMarkerOnce) {
    const MarkerPlan plan = plan_markers(*open(), kNop5);
    EXPECT_TRUE(plan.warnings.empty());
    ASSERT_EQ(plan.sites.size(), 12u);
    for (std::size_t i = 0; i < plan.sites.size(); ++i) {
        EXPECT_EQ(static_cast<std::size_t>(plan.sites[i].kind), i);
        EXPECT_NE(plan.sites[i].semaphore_offset, 0u) << marker_name(plan.sites[i].kind);
    }
}

// 6.18 patches the five-byte no-op and never fires at the ten-byte one; later kernels patch the ten-byte one; older
// ones emulate the one-byte one.
TEST_F(MarkerLibrary, TheKernelDecidesWhichNopIsProbed) {
    const auto file = open();
    const std::uint64_t site = site_of(*file, "range_begin");
    const auto chosen = [&](const KernelNops& kernel) {
        for (const MarkerSite& one : plan_markers(*file, kernel).sites)
            if (one.kind == MarkerKind::kRangeBegin) return one;
        return MarkerSite{};
    };
    EXPECT_EQ(chosen(kOld).file_offset, site);
    EXPECT_EQ(chosen(kOld).instruction.instruction_class, InstructionClass::kEmulated);
    EXPECT_EQ(chosen(kNop5).file_offset, site + 1);
    EXPECT_EQ(chosen(kNop5).instruction.instruction_class, InstructionClass::kOptimisedNop);
    EXPECT_EQ(chosen(kNop10).file_offset, site + 6);
    EXPECT_EQ(chosen(kNop10).instruction.instruction_class, InstructionClass::kOptimisedNop);
}

// Something else at the site may use what lies below the stack pointer: only what the note names is probed.
TEST_F(MarkerLibrary, OtherCodeIsProbedWhereTheNoteSays) {
    const std::uint64_t site = site_of(*open(), "range_begin");
    bytes_[site + 16] = '\x90';  // no `ret` behind the no-ops
    for (const KernelNops& kernel : {kOld, kNop5, kNop10}) {
        const std::vector<MarkerSite> sites = plan_markers(*open(), kernel).sites;
        EXPECT_EQ(sites.at(static_cast<std::size_t>(MarkerKind::kRangeBegin)).file_offset, site);
    }
}

TEST_F(MarkerLibrary, AnotherVersionsMarkersAreLeftOut) {
    replace(std::string("phase_begin\0"
                        "8@%rdi",
                        18),
            std::string("phase_begin\0"
                        "4@%edi",
                        18));
    replace(std::string("hostrange\0case_end", 18), std::string("hostrange\0case_enX", 18));
    const MarkerPlan plan = plan_markers(*open(), kNop5);
    EXPECT_EQ(plan.sites.size(), 10u);
    ASSERT_EQ(plan.warnings.size(), 2u);
    EXPECT_NE(plan.warnings[0].find("does not know it"), std::string::npos) << plan.warnings[0];
    EXPECT_NE(plan.warnings[1].find("\"4@%edi\" and not \"8@%rdi\""), std::string::npos) << plan.warnings[1];
}

TEST_F(MarkerLibrary, OtherProvidersAreNotOurs) {
    replace(std::string("hostrange\0pause", 15), std::string("hostrangX\0pause", 15));
    const MarkerPlan plan = plan_markers(*open(), kNop5);
    EXPECT_EQ(plan.sites.size(), 11u);
    EXPECT_TRUE(plan.warnings.empty());
}

// Addresses outside of the file are no sites.
TEST_F(MarkerLibrary, LyingNotes) {
    const auto file = open();
    for (const UsdtNote& note : file->usdt_notes()) {
        std::string address(8, '\0');
        std::memcpy(address.data(), &note.address, 8);
        const std::size_t description = bytes_.find(address + bytes_.substr(bytes_.find(address) + 8, 8));
        ASSERT_NE(description, std::string::npos);
        if (note.name == "session_begin") bytes_.replace(description, 8, std::string(8, '\xff'));
        if (note.name == "session_end") bytes_.replace(description + 16, 8, std::string(8, '\x7f'));
    }
    const MarkerPlan plan = plan_markers(*open(), kNop5);
    EXPECT_EQ(plan.sites.size(), 10u);
    EXPECT_EQ(plan.warnings.size(), 2u);
}

TEST(Markers, AFileWithoutNotes) {
    std::string error;
    const auto file = ElfFile::open("/proc/self/exe", error);
    ASSERT_NE(file, nullptr) << error;
    EXPECT_TRUE(plan_markers(*file, kNop5).sites.empty());
}

}  // namespace
}  // namespace hostrange
