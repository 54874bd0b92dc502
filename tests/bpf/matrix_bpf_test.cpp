// SPDX-License-Identifier: Apache-2.0
// The same program in every build: whatever compilers make of its functions, each is counted exactly.
#include <map>
#include <set>
#include <sstream>

#include "tests/bpf/harness.h"
#include "tests/matrix.h"

namespace hostrange::test {
namespace {

struct Expected {
    std::uint64_t entries = 0, unwound = 0;
};

// The lines of the program: name, entries, unwound.
std::map<std::string, Expected> expected_counts(const std::string& output) {
    std::map<std::string, Expected> result;
    std::istringstream lines(output);
    std::string name;
    Expected expected;
    while (lines >> name && name != "checksum" && lines >> expected.entries >> expected.unwound)
        result[name] = expected;
    return result;
}

bool is_folded_with_cold_part(const Report& report, const std::string& range) {
    for (const nlohmann::json& file : report.meta.at("files"))
        for (const nlohmann::json& function : file.at("functions"))
            for (const nlohmann::json& symbol : function.at("other_symbols"))
                if (function.at("range") == range && symbol.get<std::string>().ends_with(".cold")) return true;
    return false;
}

constexpr const char* kInlined[] = {"inlined",    "counts_down", "is_wanted",     "may_throw", "small",
                                    "jumps_away", "summed",      "summed_around", "list_add"};

class Matrix : public testing::TestWithParam<std::string> {};

TEST_P(Matrix, EveryShapeIsCounted) {
    REQUIRE_BPF();
    Child alone({matrix_program(GetParam())});
    ASSERT_EQ(alone.finish(), 0);
    std::map<std::string, Expected> expected = expected_counts(alone.output());
    ASSERT_EQ(expected.size(), 43u);

    Profiler profiler({"run", "--probe-map", matrix_map(), "--", matrix_program(GetParam())});
    const Report report = profiler.finish();
    EXPECT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(report.lost(), 0u);
    EXPECT_EQ(report.orphans(), 0u);
    EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
    // The target's own result is that of an unprobed run.
    EXPECT_NE(report.printed.find(alone.output()), std::string::npos) << report.printed;

    // Twins with the same code: linkers keep one of them, which then has the calls of both; or the compiler lets one
    // jump to the other.
    std::set<std::string> not_seen;
    for (const nlohmann::json& one : report.meta.at("not_seen")) not_seen.insert(one.at("range"));
    const RangeCounters one = report.counters("twin_one"), two = report.counters("twin_two");
    if (not_seen.erase("twin_two") + not_seen.erase("twin_one") > 0) {
        EXPECT_EQ(one.entries + two.entries, 31u + 37u);
    } else if (one.entries != 31u) {
        EXPECT_EQ(one.entries, 31u + 37u);
        EXPECT_EQ(two.entries, 37u);
    } else if (two.entries != 37u) {
        EXPECT_EQ(two.entries, 31u + 37u);
    }
    expected.erase("twin_one");
    expected.erase("twin_two");
    // The linker may fold tiny() with the cold part of jump_table(), which then enters it for every ninth number.
    if (is_folded_with_cold_part(report, "tiny")) expected["tiny"].entries += 5;
    // Inlined calls need debug information.
    if (GetParam().find("nodebug") != std::string::npos) {
        for (const char* name : kInlined) {
            EXPECT_EQ(not_seen.erase(name), 1u);
            expected.erase(name);
        }
    }
    EXPECT_TRUE(not_seen.empty()) << *not_seen.begin();
    for (const auto& [name, counts] : expected) {
        const RangeCounters counters = report.counters(name);
        EXPECT_EQ(counters.entries, counts.entries) << name;
        EXPECT_EQ(counters.open, 0u) << name;
        // longjmp() to the function that an inlined call lies in leaves no trace: the stack is the same, and on its way
        // the function may pass by where the call ends.
        if (name == "jumps_away") continue;
        EXPECT_EQ(counters.by_exception + counters.abandoned, counts.unwound) << name;
        EXPECT_EQ(report.sum(name), counts.entries - counts.unwound) << name;
    }
}

// clang at -O2 makes copies of small(), gcc at -O0 none.
TEST(MatrixDoubt, IsSaidInListingMessagesAndSidecar) {
    REQUIRE_BPF();
    for (const bool is_clang : {true, false}) {
        const std::string build = is_clang ? "clang_O2" : "gcc_O0";
        Profiler profiler({"run", "--probe-map", matrix_map(), "--", matrix_program(build)});
        const Report report = profiler.finish();
        EXPECT_EQ(report.status, 0) << report.messages;
        EXPECT_EQ(report.printed.find("the count of small may be off: 33 scopes are of") != std::string::npos, is_clang)
            << report.printed;
        unsigned doubtful = 0;
        bool has_reason = false;
        for (const nlohmann::json& file : report.meta.at("files")) {
            for (const nlohmann::json& one : file.at("inlined"))
                if (one.at("range") == "small") doubtful += one.at("doubtful").get<unsigned>();
            for (const nlohmann::json& one : file.at("functions"))
                has_reason |= one.at("range") == "small" && one.at("doubt") != "";
        }
        EXPECT_EQ(doubtful, is_clang ? 2u : 0u) << build;
        EXPECT_EQ(has_reason, is_clang) << build;
    }
}

INSTANTIATE_TEST_SUITE_P(Builds, Matrix, testing::ValuesIn(matrix_builds()),
                         [](const auto& build) { return build.param; });

}  // namespace
}  // namespace hostrange::test
