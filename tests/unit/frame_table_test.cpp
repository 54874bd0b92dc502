// SPDX-License-Identifier: Apache-2.0
// The unwinder's tables of real programs, against what readelf prints of them.
#include "loader/probes/frame_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "loader/probes/elf_file.h"
#include "tests/matrix.h"

namespace hostrange::test {
namespace {

struct Row {
    std::uint64_t address;
    std::string frame_address;  // "rsp+8", "rbp+16", "unknown"
};
struct Frame {
    std::uint64_t begin, end;
    std::vector<Row> rows;
};

// The .eh_frame section alone: .debug_frame has the same functions once more.
std::vector<Frame> frames_of(const std::string& program) {
    const std::string command = "readelf --wide --debug-dump=frames-interp " + program + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::vector<Frame> frames;
    bool in_section = false;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe.get())) {
        const std::string line = buffer;
        if (line.starts_with("Contents of the")) in_section = line.find(".eh_frame") != std::string::npos;
        if (!in_section) continue;
        unsigned long begin = 0, end = 0, address = 0;
        char text[64];
        const std::size_t range = line.find(" pc=");
        if (range != std::string::npos && std::sscanf(line.c_str() + range, " pc=%lx..%lx", &begin, &end) == 2) {
            frames.push_back({begin, end, {}});
        } else if (line.find(" CIE") != std::string::npos) {
            frames.push_back({0, 0, {}});  // its rows are nobody's
        } else if (!frames.empty() && std::sscanf(line.c_str(), "%16lx %63s", &address, text) == 2) {
            // By another register, or computed: not to be had.
            const std::string where = text;
            const bool is_known = where.starts_with("rsp+") || where.starts_with("rbp+");
            if (where != "ZERO") frames.back().rows.push_back({address, is_known ? where : "unknown"});
        }
    }
    std::erase_if(frames, [](const Frame& frame) { return frame.end == 0; });
    return frames;
}

std::string text_of(const std::optional<FrameAddress>& address) {
    if (!address) return "unknown";
    return (address->from_frame_pointer ? "rbp+" : "rsp+") + std::to_string(address->offset);
}

class FrameTableOf : public testing::TestWithParam<std::string> {};

TEST_P(FrameTableOf, AgreesWithReadelf) {
    const std::string program = matrix_program(GetParam());
    std::string error;
    const std::unique_ptr<ElfFile> file = ElfFile::open(program, error);
    ASSERT_TRUE(file) << error;
    const FrameTable table(*file);
    const std::vector<Frame> frames = frames_of(program);
    ASSERT_GT(frames.size(), 40u);
    std::size_t rows = 0;
    for (const Frame& frame : frames) {
        for (const std::uint64_t address : {frame.begin, frame.end - 1}) {
            const std::optional<CallFrame> found = table.at(address);
            ASSERT_TRUE(found) << std::hex << address;
            EXPECT_EQ(found->begin, frame.begin);
            EXPECT_EQ(found->end, frame.end);
        }
        for (const Row& row : frame.rows) {
            EXPECT_EQ(text_of(table.frame_address(*table.at(frame.begin), row.address)), row.frame_address)
                << std::hex << row.address;
            ++rows;
        }
    }
    EXPECT_GT(rows, frames.size());
}

TEST_P(FrameTableOf, KnowsNothingOutsideOfTheFrames) {
    std::string error;
    const std::string program = matrix_program(GetParam());
    const std::unique_ptr<ElfFile> file = ElfFile::open(program, error);
    ASSERT_TRUE(file) << error;
    const FrameTable table(*file);
    const std::vector<Frame> frames = frames_of(program);
    const auto is_inside = [&](std::uint64_t address) {
        return std::any_of(frames.begin(), frames.end(),
                           [&](const Frame& frame) { return address >= frame.begin && address < frame.end; });
    };
    for (const Frame& frame : frames) EXPECT_EQ(table.at(frame.end).has_value(), is_inside(frame.end));
    EXPECT_FALSE(table.at(0));
    EXPECT_FALSE(table.at(~std::uint64_t{0}));
}

INSTANTIATE_TEST_SUITE_P(Builds, FrameTableOf,
                         testing::Values("gcc_O0", "gcc_O2", "gcc_O3_lto", "gcc_O2_static", "clang_O0", "clang_O2",
                                         "clang_O2_static", "clang_Os_icf"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hostrange::test
