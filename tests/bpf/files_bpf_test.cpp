// SPDX-License-Identifier: Apache-2.0
// Which file is probed: the one that the process has mapped, wherever it is now.
#include <filesystem>

#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

constexpr const char* kProgram = "hard_case_calls";

// A copy of the target program under its own name, in a folder of its own.
std::string copy_of_program(const std::string& name) {
    const std::string folder = scratch_file(name);
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(target_path(kProgram), folder + "/" + kProgram);
    return folder + "/" + kProgram;
}

Report profile(Child& target, std::uint64_t calls) {
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
    target.release();
    EXPECT_EQ(target.finish(), 0);
    Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.counters("outer").exits, calls);
    return report;
}

TEST(Files, OneThatWasDeletedIsStillProbed) {
    REQUIRE_BPF();
    const std::string program = copy_of_program("deleted");
    Child target({program, "single", "300"});
    target.wait_for_output("ready");
    std::filesystem::remove(program);
    profile(target, 300);
}

// At its path there is another file now, in which the same offsets are something else.
TEST(Files, OneThatWasReplacedIsProbedAsItIsMapped) {
    REQUIRE_BPF();
    const std::string program = copy_of_program("replaced");
    Child target({program, "single", "300"});
    target.wait_for_output("ready");
    std::filesystem::copy_file(target_path("hard_case_fibers"), program + ".new");
    std::filesystem::rename(program + ".new", program);
    profile(target, 300);
}

TEST(Files, OneInAnotherMountNamespaceIsProbed) {
    REQUIRE_BPF();
    const std::string folder = scratch_file("mounted");
    std::filesystem::create_directory(folder);
    const std::string program = folder + "/" + kProgram;
    Child target({"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                  "mount -t tmpfs none " + folder + " && cp " + target_path(kProgram) + " " + program + " && exec " +
                      program + " single 300"});
    target.wait_for_output("ready");
    ASSERT_FALSE(std::filesystem::exists(program));
    const Report report = profile(target, 300);
    EXPECT_EQ(report.meta.at("files").at(0).at("path"), program);
}

// The probes of what a file was would stand amid the instructions of what it has become: they go before it is mapped
// again. The content written here is the same, so that a probe which stayed would count.
TEST(Files, OneThatIsOverwrittenLosesItsProbes) {
    REQUIRE_BPF();
    const std::string folder = scratch_file("overwritten"), original = target_path("libplugin.so");
    const std::string library = folder + "/libplugin.so";
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(original, library);
    const std::string load = "echo | " + target_path("hard_case_plugin") + " once 7 " + library;
    Profiler profiler({"run", "--probe-map", hard_cases_map(), "--", "/bin/sh", "-c",
                       load + " && cat " + original + " > " + library + " && read line && " + load});
    profiler.child().wait_for_error(library + " was overwritten in place");
    profiler.child().release();
    const Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.sum("plugin_entry"), 1u);
    for (const nlohmann::json& row : report.rows) EXPECT_EQ(row.at("exact_count"), false);
}

// Two copies are two files to the kernel, whatever their build-id.
TEST(Files, CopiesAreProbedEach) {
    REQUIRE_BPF();
    Child one({copy_of_program("one"), "single", "300"}), two({copy_of_program("two"), "single", "500"});
    one.wait_for_output("ready");
    two.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(one.process()), "--pid", std::to_string(two.process()), "--probe-map",
                       hard_cases_map()});
    one.release();
    two.release();
    EXPECT_EQ(one.finish(), 0);
    EXPECT_EQ(two.finish(), 0);
    const Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.counters("outer").exits, 800u);
    EXPECT_EQ(report.counters("inner").exits, 6u * 800u);
}

}  // namespace
}  // namespace hostrange::test
