// SPDX-License-Identifier: Apache-2.0
// Commands started by the profiler, libraries that come later, children, and the programs that processes turn into.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>

#include "tests/bpf/harness.h"

namespace hostrange::test {
namespace {

Report run_command(const std::vector<std::string>& command, const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"run", "--probe-map", hard_cases_map()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    Profiler profiler(arguments);
    profiler.child().release();
    return profiler.finish();
}

TEST(Run, FirstCallAfterDlopenIsSeenEveryTime) {
    REQUIRE_BPF();
    for (int i = 0; i < 100; ++i) {
        const Report report = run_command({target_path("hard_case_plugin"), "once", "7", target_path("libplugin.so")});
        expect_sound(report);
        ASSERT_EQ(report.sum("plugin_constructor"), 1u) << "run " << i;
        ASSERT_EQ(report.sum("plugin_entry"), 1u) << "run " << i;
    }
}

TEST(Run, LibraryThatComesAndGoes) {
    REQUIRE_BPF();
    const Report report = run_command({target_path("hard_case_plugin"), "repeat", "20", target_path("libplugin.so")});
    expect_sound(report);
    EXPECT_EQ(report.sum("plugin_constructor"), 20u);
    EXPECT_EQ(report.sum("plugin_entry"), 20u);
}

TEST(Run, EveryCallOfACommandIsSeen) {
    REQUIRE_BPF();
    const Report report = run_command({target_path("hard_case_calls"), "threads", "200", "4"});
    expect_sound(report);
    EXPECT_EQ(report.sum("outer"), 800u);
    EXPECT_EQ(report.sum("inner"), 4800u);
}

TEST(Run, ThroughAShell) {
    REQUIRE_BPF();
    const std::string script =
        target_path("hard_case_calls") + " single 50 && exec " + target_path("hard_case_calls") + " single 70";
    const Report report = run_command({"/bin/sh", "-c", script});
    expect_sound(report);
    EXPECT_EQ(report.sum("outer"), 120u);
    EXPECT_EQ(report.meta.at("processes").size(), 2u);
}

TEST(Run, ForkedChildrenAreSeen) {
    REQUIRE_BPF();
    const Report report = run_command({target_path("hard_case_processes"), "fork_continue", "20", "30"});
    ASSERT_EQ(report.status, 0) << report.messages;
    EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
    EXPECT_EQ(report.lost(), 0u);
    EXPECT_EQ(report.sum("forking_outer"), 20u);
    EXPECT_EQ(report.sum("child_work"), 600u);
    // Each child returns from two functions that its parent had entered.
    EXPECT_EQ(report.orphans(), 40u);
}

TEST(Run, ExecInsideARange) {
    REQUIRE_BPF();
    const Report report = run_command({target_path("hard_case_processes"), "exec", "10"});
    expect_sound(report);
    EXPECT_EQ(report.sum("leaf"), 11u);
    EXPECT_EQ(report.counters("executing_outer").abandoned, 10u);
    EXPECT_EQ(report.counters("executing_inner").abandoned, 10u);
}

TEST(Run, ExecInAThread) {
    REQUIRE_BPF();
    const Report report = run_command({target_path("hard_case_processes"), "exec_from_thread", "10"});
    expect_sound(report);
    EXPECT_EQ(report.sum("leaf"), 11u);
    EXPECT_EQ(report.counters("waiting_outer").abandoned, 10u);
    EXPECT_EQ(report.counters("executing_inner").abandoned, 10u);
}

TEST(Run, StatusIsTheCommands) {
    REQUIRE_BPF();
    EXPECT_EQ(run_command({"/bin/sh", "-c", "exit 7"}).status, 7);
    EXPECT_EQ(run_command({"/bin/sh", "-c", "kill -KILL $$"}).status, 128 + SIGKILL);
}

// In one of them the profiler would have written that it profiles, had it begun.
TEST(Run, ACommandThatIsNotThereIsSaidAtOnce) {
    REQUIRE_BPF();
    const auto expect = [](const std::string& command, int status, const std::string& cause) {
        Child profiler({profiler_path(), "run", "--", command});
        EXPECT_EQ(profiler.finish(), status);
        EXPECT_TRUE(profiler.error().starts_with("hostrange-bpf: " + command + ": " + cause + "\n  hint: "))
            << profiler.error();
    };
    expect("/nowhere/to/be/found", 127, "No such file or directory");
    expect("no_such_command_anywhere", 127, "No such file or directory");
    expect("/etc/passwd", 126, "Permission denied");
}

TEST(Run, AnAbortUnderUretprobesIsExplained) {
    REQUIRE_BPF();
    const auto says_why = [](const Report& report) {
        return report.meta.at("warnings").dump().find("an exception that meets one aborts") != std::string::npos;
    };
    const std::vector<std::string> throwing = {target_path("hard_case_exceptions"), "through_all", "4"};
    const Report report = run_command(throwing, {"--return-probes=uretprobe"});
    EXPECT_EQ(report.status, 128 + SIGABRT);
    EXPECT_TRUE(says_why(report)) << report.meta.at("warnings").dump(2);
    EXPECT_FALSE(says_why(run_command(throwing)));
}

// The kernel keeps 64 replaced return addresses a thread.
TEST(Run, ReturnsThatUretprobesDoNotSeeAreSaid) {
    REQUIRE_BPF();
    for (const auto& [depth, unseen] : {std::pair("64", 0u), std::pair("100", 36u)}) {
        const Report report =
            run_command({target_path("hard_case_recursion"), "descend", "1", depth}, {"--return-probes=uretprobe"});
        EXPECT_EQ(report.counters("recurse").abandoned, unseen) << depth;
        EXPECT_EQ(report.meta.at("unbalanced_sites"), 0);
        const bool is_said = report.meta.at("warnings").dump().find("not seen to return") != std::string::npos;
        EXPECT_EQ(is_said, unseen != 0) << report.meta.at("warnings").dump(2);
    }
}

TEST(Run, AsTheInvokingUser) {
    REQUIRE_BPF();
    constexpr uid_t kNobody = 65534;
    const std::string output = scratch_file("report.jsonl"), written = scratch_file("id");
    std::ofstream(written).close();
    ASSERT_EQ(chmod(written.c_str(), 0666), 0);
    Child profiler(
        {profiler_path(), "run", "--output", output, "--", "/bin/sh", "-c", "id -u; id -g; id -G; echo $HOME"},
        {.environment = {{"SUDO_UID", std::to_string(kNobody)}, {"SUDO_GID", std::to_string(kNobody)}},
         .user = std::nullopt});
    EXPECT_EQ(profiler.finish(), 0) << profiler.error();
    EXPECT_EQ(profiler.output().rfind("65534\n65534\n65534\n/nonexistent\n", 0), 0u) << profiler.output();
    struct stat status {};
    ASSERT_EQ(stat(output.c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, kNobody);
}

TEST(Run, DurationEndsTheProfileAndNotTheCommand) {
    REQUIRE_BPF();
    const std::string output = scratch_file("report.jsonl");
    Child profiler({profiler_path(), "run", "--probe-map", hard_cases_map(), "--duration", "200ms", "--output", output,
                    "--", target_path("hard_case_calls"), "single", "30"});
    profiler.wait_for_error("goes on unprobed");
    profiler.release();
    EXPECT_EQ(profiler.finish(), 0) << profiler.error();
    EXPECT_NE(profiler.output().find("done"), std::string::npos);
}

// Without stops: a process named by --pid goes on, and its probes stay in place, through exec and dlopen.
TEST(Pid, ForkDoesNotDisturb) {
    REQUIRE_BPF();
    std::string result;
    const std::vector<std::string> target = {target_path("hard_case_processes"), "fork_continue", "20", "30"};
    const Report report = profile_target(target, {}, result);
    EXPECT_EQ(result, unprobed_result(target));
    expect_sound(report);
    EXPECT_EQ(report.sum("forking_outer"), 20u);
    EXPECT_EQ(report.sum("forking_inner"), 20u);
    EXPECT_EQ(report.counters("child_work").entries, 0u);
}

TEST(Pid, VforkDoesNotDisturb) {
    REQUIRE_BPF();
    for (const char* mode : {"vfork_exec", "vfork_call"}) {
        std::string result;
        const std::vector<std::string> target = {target_path("hard_case_processes"), mode, "20"};
        const Report report = profile_target(target, {}, result);
        EXPECT_EQ(result, unprobed_result(target));
        expect_sound(report);
        EXPECT_EQ(report.sum(mode == std::string("vfork_exec") ? "vforking_inner" : "vfork_calling"), 20u);
    }
}

TEST(Pid, ExecKeepsItsProbes) {
    REQUIRE_BPF();
    std::string result;
    const std::vector<std::string> target = {target_path("hard_case_processes"), "exec", "10"};
    const Report report = profile_target(target, {}, result);
    EXPECT_EQ(result, unprobed_result(target));
    expect_sound(report);
    EXPECT_EQ(report.sum("leaf"), 11u);
    EXPECT_EQ(report.counters("executing_inner").abandoned, 10u);
}

TEST(Pid, ExecInAThreadIsSaidToMissCalls) {
    REQUIRE_BPF();
    std::string result;
    const std::vector<std::string> target = {target_path("hard_case_processes"), "exec_from_thread", "10"};
    const Report report = profile_target(target, {}, result);
    EXPECT_EQ(result, unprobed_result(target));
    expect_sound(report);
    EXPECT_GE(report.sum("leaf"), 1u);
    EXPECT_NE(report.printed.find("ran another program from a thread"), std::string::npos) << report.printed;
}

// While probes are taken away, a function's exit can have one and its entry none any more. Such an exit must not be
// taken for that of an earlier call which an exception ended.
TEST(Pid, ThoseThatThrowAreNotEndedLate) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_exceptions"), "through_all", "2000000000"});
    target.wait_for_output("ready");
    target.release();
    for (int i = 0; i < 3; ++i) {
        Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map(), "-d", "300ms"});
        const Report report = profiler.finish();
        expect_sound(report);
        EXPECT_GT(report.counters("inner").by_exception, 0u);
        EXPECT_EQ(report.meta["stacks"]["ended_late"], 0u);
    }
}

// The executable mapping of a file: its bytes in the process' memory, and those of the file at the same place.
struct Mapping {
    unsigned long start = 0, end = 0, offset = 0;
};
Mapping code_mapping(pid_t process, const std::string& file) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        Mapping mapping;
        char permissions[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx", &mapping.start, &mapping.end, permissions, &mapping.offset) ==
                4 &&
            permissions[2] == 'x' && line.find(file) != std::string::npos)
            return mapping;
    }
    return {};
}
// A breakpoint is visible in a process' memory.
unsigned char byte_at(pid_t process, const std::string& file, std::uint64_t file_offset) {
    const Mapping mapping = code_mapping(process, file);
    if (file_offset < mapping.offset || file_offset >= mapping.offset + (mapping.end - mapping.start)) {
        ADD_FAILURE() << file << " is not mapped";
        return 0;
    }
    std::ifstream memory("/proc/" + std::to_string(process) + "/mem");
    memory.seekg(static_cast<std::streamoff>(mapping.start + file_offset - mapping.offset));
    return static_cast<unsigned char>(memory.get());
}

std::string code_of(pid_t process, const std::string& file) {
    const Mapping mapping = code_mapping(process, file);
    std::string bytes(mapping.end - mapping.start, 0);
    std::ifstream memory("/proc/" + std::to_string(process) + "/mem", std::ios::binary);
    memory.seekg(static_cast<std::streamoff>(mapping.start));
    memory.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}
std::string code_in_file(pid_t process, const std::string& file, const std::string& content) {
    const Mapping mapping = code_mapping(process, file);
    return content.substr(mapping.offset, mapping.end - mapping.start);
}

std::uint64_t entry_offset(const Report& report, const std::string& range) {
    for (const nlohmann::json& file : report.meta.at("files")) {
        for (const nlohmann::json& site : file.at("sites")) {
            if (site.at("kind") == "entry" && site.at("range") == range) return site.at("file_offset");
        }
    }
    ADD_FAILURE() << "no site of " << range;
    return 0;
}

// A child of a profiled process is nobody's to slow down: the breakpoints that it has inherited are taken out.
TEST(Pid, AForkedChildIsRelievedOfItsBreakpoints) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_processes"), "fork_wait", "5"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
    target.release();
    const std::string line = target.wait_for_output("child ");
    const pid_t child = std::stoi(line.substr(line.find("child ") + 6));
    // The offset is not known before the report, so every place of the program is looked at: relieved, the child's code
    // is that of the file.
    const auto is_relieved = [&] {
        std::ifstream file(target_path("hard_case_processes"), std::ios::binary);
        const std::string content(std::istreambuf_iterator<char>(file), {});
        return code_of(child, "hard_case_processes") == code_in_file(child, "hard_case_processes", content);
    };
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool relieved = is_relieved();
    while (!relieved && std::chrono::steady_clock::now() < patience) relieved = is_relieved();
    EXPECT_TRUE(relieved);
    kill(child, SIGTERM);
    EXPECT_EQ(target.finish(), 0);
    const Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.counters("child_work").entries, 1u);
}

TEST(Killed, TheTargetRunsOnUnprobed) {
    REQUIRE_BPF();
    constexpr unsigned char kBreakpoint = 0xcc;
    Child target({target_path("hard_case_calls"), "single", "1000"});
    target.wait_for_output("ready");
    const std::vector<std::string> arguments = {"--pid", std::to_string(target.process()), "--probe-map",
                                                hard_cases_map()};
    std::uint64_t offset = 0;
    {
        Profiler first(arguments);
        first.child().signal(SIGINT);
        offset = entry_offset(first.finish(), "outer");
    }
    const unsigned char original = byte_at(target.process(), "hard_case_calls", offset);
    EXPECT_NE(original, kBreakpoint);
    Profiler second(arguments);
    EXPECT_EQ(byte_at(target.process(), "hard_case_calls", offset), kBreakpoint);
    second.child().signal(SIGKILL);
    EXPECT_EQ(second.child().finish(), 128 + SIGKILL);
    EXPECT_EQ(byte_at(target.process(), "hard_case_calls", offset), original);
    target.release();
    EXPECT_EQ(target.finish(), 0);
}

// Under `run` the command is stopped now and then. Should the profiler die just then, the guardian lets it run.
TEST(Killed, ACommandIsNotLeftStopped) {
    REQUIRE_BPF();
    const std::vector<std::vector<std::string>> commands = {
        {target_path("hard_case_plugin"), "repeat", "500", target_path("libplugin.so")},
        {target_path("hard_case_processes"), "fork_continue", "300", "2"}};
    for (int i = 0; i < 12; ++i) {
        std::vector<std::string> command = {profiler_path(), "run", "--probe-map", hard_cases_map(), "--"};
        command.insert(command.end(), commands[i % 2].begin(), commands[i % 2].end());
        Child profiler(command, {.environment = {{"TARGET_NO_WAIT", "1"}}, .user = std::nullopt});
        profiler.wait_for_output("ready");
        usleep(20000 * i);  // another moment each time; any will do
        profiler.signal(SIGKILL);
        // Reads to the end of the command's output, which it would never reach if it were stopped.
        EXPECT_EQ(profiler.finish(), 128 + SIGKILL);
        EXPECT_NE(profiler.output().find("done"), std::string::npos) << "round " << i << profiler.output();
    }
}

TEST(Killed, ABystanderHasNoBreakpoint) {
    REQUIRE_BPF();
    Child bystander({target_path("hard_case_calls"), "single", "10"});
    Child target({target_path("hard_case_calls"), "single", "10"});
    bystander.wait_for_output("ready");
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
    std::vector<unsigned char> in_target, in_bystander;
    target.release();
    target.finish();
    const std::uint64_t offset = entry_offset(profiler.finish(), "outer");
    Child again({target_path("hard_case_calls"), "single", "10"});
    again.wait_for_output("ready");
    Profiler second({"--pid", std::to_string(again.process()), "--probe-map", hard_cases_map()});
    EXPECT_EQ(byte_at(again.process(), "hard_case_calls", offset), 0xcc);
    EXPECT_NE(byte_at(bystander.process(), "hard_case_calls", offset), 0xcc);
    second.child().signal(SIGINT);
    EXPECT_EQ(second.finish().status, 0);
}

}  // namespace
}  // namespace hostrange::test
