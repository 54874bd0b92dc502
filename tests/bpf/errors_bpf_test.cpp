// SPDX-License-Identifier: Apache-2.0
// What bad input gets: a one-line cause, a hint, an exit code of its own, and nothing left behind.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/bpf/harness.h"
#include "tests/matrix.h"

namespace hostrange::test {
namespace {

struct Outcome {
    int status;
    std::string message;
};

Outcome run_profiler(const std::vector<std::string>& arguments, const Child::Options& options = {}) {
    std::vector<std::string> command = {profiler_path()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Child child(command, options);
    const int status = child.finish();
    return {status, child.error()};
}

// In a mount namespace of its own, after `prepare`.
Outcome run_in_other_world(const std::string& prepare, const std::string& arguments) {
    Child child({"unshare", "--mount", "/bin/sh", "-c",
                 "mount --make-rprivate / && " + prepare + " && exec " + profiler_path() + " " + arguments});
    const int status = child.finish();
    return {status, child.error()};
}

void expect_failure(const Outcome& outcome, int status, const std::string& cause) {
    EXPECT_EQ(outcome.status, status) << outcome.message;
    EXPECT_NE(outcome.message.find(cause), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("hint: "), std::string::npos) << outcome.message;
}

std::string own_pid() {
    return std::to_string(getpid());
}

TEST(Errors, Usage) {
    expect_failure(run_profiler({}), 64, "nothing to profile");
    expect_failure(run_profiler({"--pid", own_pid(), "--all"}), 64, "exclude each other");
    expect_failure(run_profiler({"run"}), 64, "there is no command");
    EXPECT_EQ(run_profiler({"--pid", "no number"}).status, 64);
    EXPECT_EQ(run_profiler({"--pid", own_pid(), "--duration", "soon"}).status, 64);
    EXPECT_EQ(run_profiler({"--pid", own_pid(), "--ring-size", "5000"}).status, 64);
    expect_failure(run_profiler({"1234"}), 64, "did you mean --pid 1234?");
    expect_failure(run_profiler({"--durration", "5s"}), 64, "did you mean --duration?");
    expect_failure(run_profiler({"probes", "--fil", "x"}), 64, "did you mean --file?");
    expect_failure(run_profiler({"--nothing-like-it"}), 64, "hint: --help lists the options");
    expect_failure(run_profiler({"run", "ls"}), 64, "put -- before the command");
    EXPECT_EQ(run_profiler({"--help"}).status, 0);
    EXPECT_EQ(run_profiler({"--version"}).status, 0);
}

TEST(Errors, ProbeMap) {
    expect_failure(run_profiler({"--pid", own_pid(), "--probe-map", "/nowhere.toml"}), 78, "/nowhere.toml");
    const std::string map = scratch_file("map.toml");
    std::ofstream(map) << "version = 1\n[targets.t]\nfiles = [\"x\"]\n[[ranges]]\nname = \"a\"\ntarget = \"t\"\n"
                          "functions = ['(']\n";
    expect_failure(run_profiler({"--pid", own_pid(), "--probe-map", map}), 78,
                   map + ":7:14: key 'ranges[0].functions[0]'");
}

TEST(Errors, NoSuchProcess) {
    REQUIRE_BPF();
    Child gone({"/bin/true"});
    gone.finish();
    expect_failure(run_profiler({"--pid", std::to_string(gone.process())}), 66, "there is no process");
    expect_failure(run_profiler({"--pid", "2"}), 66, "kernel thread");
    std::promise<void> done;
    std::promise<pid_t> thread_id;
    std::thread thread([&] {
        thread_id.set_value(gettid());
        done.get_future().wait();
    });
    expect_failure(run_profiler({"--pid", std::to_string(thread_id.get_future().get())}), 66,
                   "is a thread of process " + own_pid());
    done.set_value();
    thread.join();
}

TEST(Errors, NothingMapped) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_calls"), "single", "1"});
    target.wait_for_output("ready");
    const Outcome outcome = run_profiler({"--pid", std::to_string(target.process())});
    expect_failure(outcome, 68, "maps no file of the probe map");
    EXPECT_NE(outcome.message.find("libinfiniops.so*"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("hard_case_calls"), std::string::npos) << outcome.message;
    target.release();
    EXPECT_EQ(target.finish(), 0);
}

TEST(Errors, OneOfTwoProcessesMapsNothing) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_calls"), "single", "1"}), other({"/bin/cat"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--pid", std::to_string(other.process()),
                       "--probe-map", hard_cases_map()});
    target.release();
    other.release();
    const Report report = profiler.finish();
    expect_sound(report);
    EXPECT_EQ(report.sum("outer"), 1u);
    const std::string said = "process " + std::to_string(other.process()) + " (cat) maps no file of the probe map yet";
    EXPECT_NE(report.messages.find(said), std::string::npos) << report.messages;
}

TEST(Errors, ACommandThatMapsNothingIsSaidToBeUnprobed) {
    REQUIRE_BPF();
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"/bin/true"}, {matrix_program("gcc_O2_nodebug")}}) {
        std::vector<std::string> arguments = {profiler_path(), "run", "--"};
        arguments.insert(arguments.end(), command.begin(), command.end());
        Child profiler(arguments);
        EXPECT_EQ(profiler.finish(), 0);
        EXPECT_NE(profiler.output().find("Nothing was probed"), std::string::npos) << profiler.output();
        EXPECT_NE(profiler.output().find("maps no file of the probe map"), std::string::npos) << profiler.output();
    }
    EXPECT_NE(run_profiler({"run", "true"}).message.find("put -- before the command"), std::string::npos);
}

TEST(Errors, Stripped) {
    REQUIRE_BPF();
    const std::string stripped = std::filesystem::path(scratch_file("x")).parent_path() / "hard_case_stripped";
    Child strip({"strip", "-o", stripped, target_path("hard_case_calls")});
    ASSERT_EQ(strip.finish(), 0) << strip.error();
    Child target({stripped, "single", "1"});
    target.wait_for_output("ready");
    expect_failure(run_profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()}), 67,
                   "stripped");
    target.release();
    EXPECT_EQ(target.finish(), 0);
}

TEST(Errors, OutputIsCheckedFirst) {
    REQUIRE_BPF();
    expect_failure(run_profiler({"--pid", own_pid(), "--output", "/nowhere/report.jsonl"}), 73, "/nowhere");
    expect_failure(run_profiler({"--pid", own_pid(), "--output", "/"}), 73, "/");
}

TEST(Errors, MissingRights) {
    REQUIRE_BPF();
    // The program may lie where nobody can go.
    const std::string copy = scratch_file("profiler");
    std::filesystem::copy_file(profiler_path(), copy);
    const std::string map = scratch_file("map.toml");
    std::filesystem::copy_file(hard_cases_map(), map);
    Child child({copy, "--pid", "1", "--probe-map", map}, {.environment = {}, .user = 65534});
    const int status = child.finish();
    expect_failure({status, child.error()}, 77, "CAP_BPF, CAP_PERFMON");
}

TEST(Errors, OtherUsersProcess) {
    REQUIRE_BPF();
    const std::string copy = scratch_file("profiler");
    std::filesystem::copy_file(profiler_path(), copy);
    const std::string map = scratch_file("map.toml");
    std::filesystem::copy_file(hard_cases_map(), map);
    Child target({target_path("hard_case_calls"), "single", "1"});
    target.wait_for_output("ready");
    // Enough to load the programs, not enough to look into others.
    Child child({"setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all,+bpf,+perfmon",
                 "--ambient-caps=-all,+bpf,+perfmon", "--bounding-set=-all,+bpf,+perfmon", copy, "--pid",
                 std::to_string(target.process()), "--probe-map", map});
    const int status = child.finish();
    expect_failure({status, child.error()}, 81, "cannot be opened");
}

TEST(Errors, KernelTooOld) {
    REQUIRE_BPF();
    Child child({"setarch", "--uname-2.6", profiler_path(), "--pid", own_pid()});
    const int status = child.finish();
    expect_failure({status, child.error()}, 69, "too old: 5.15 is needed");
}

TEST(Errors, NoTypeInformation) {
    REQUIRE_BPF();
    expect_failure(run_in_other_world("mount -t tmpfs none /sys/kernel/btf", "--pid " + own_pid()), 79,
                   "/sys/kernel/btf/vmlinux");
}

TEST(Errors, Lockdown) {
    REQUIRE_BPF();
    expect_failure(run_in_other_world("mount -t tmpfs none /sys/kernel/security && echo 'none integrity "
                                      "[confidentiality]' > /sys/kernel/security/lockdown",
                                      "--pid " + own_pid()),
                   80, "locked down");
}

TEST(Errors, NoCompiler) {
    REQUIRE_BPF();
    expect_failure(run_in_other_world("mount -t tmpfs none /proc/sys/net && mkdir /proc/sys/net/core && echo 0 > "
                                      "/proc/sys/net/core/bpf_jit_enable",
                                      "--pid " + own_pid()),
                   69, "bpf_jit_enable=1");
}

TEST(Errors, TooManySites) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_calls"), "single", "1"});
    target.wait_for_output("ready");
    expect_failure(
        run_profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map(), "--max-sites", "2"}),
        71, "more than --max-sites=2");
    target.release();
    EXPECT_EQ(target.finish(), 0);
}

// Whatever can still be read of it: it has ended, and nothing else is wrong.
TEST(Errors, TargetEndsWhileItIsAttached) {
    REQUIRE_BPF();
    constexpr int kRounds = 24;
    for (int round = 0; round < kRounds; ++round) {
        Child target({target_path("hard_case_calls"), "spin", "100"});
        target.wait_for_output("ready");
        Child profiler({profiler_path(), "--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
        std::this_thread::sleep_for(std::chrono::milliseconds(100 + 10 * round));  // another moment each time
        target.signal(SIGKILL);
        target.finish();
        const int status = profiler.finish();
        EXPECT_TRUE(status == 0 || status == 66) << status << profiler.error();
        EXPECT_EQ(status == 66, profiler.error().find("there is no process") != std::string::npos) << profiler.error();
    }
}

TEST(Errors, TargetEndsWhileProfiled) {
    REQUIRE_BPF();
    Child target({target_path("hard_case_calls"), "spin", "100"});
    target.wait_for_output("ready");
    Profiler profiler({"--pid", std::to_string(target.process()), "--probe-map", hard_cases_map()});
    target.signal(SIGKILL);
    EXPECT_EQ(target.finish(), 128 + SIGKILL);
    const Report report = profiler.finish();
    EXPECT_EQ(report.status, 0);
    EXPECT_TRUE(report.rows.empty());
    EXPECT_NE(report.printed.find("No scope ended"), std::string::npos) << report.printed;
}

int status_of(const std::string& script) {
    return Child({"/bin/sh", "-c", script}).finish();
}

TEST(Errors, StandardStreams) {
    REQUIRE_BPF();
    const std::string run = profiler_path() + " run -- /bin/sh -c 'exit 7'";
    EXPECT_EQ(status_of(run + " >/dev/full"), 73);
    EXPECT_EQ(status_of(profiler_path() + " probes --file " + target_path("hard_case_calls") + " --probe-map " +
                        hard_cases_map() + " >/dev/full"),
              73);
    // Nobody has to listen.
    EXPECT_EQ(status_of(run + " >&- 2>&- <&-"), 7);
    const std::string status = scratch_file("status");
    EXPECT_EQ(status_of("{ " + run + "; echo $? >" + status + "; } 2>&1 | true; exit 0"), 0);
    int written = 0;
    std::ifstream(status) >> written;
    EXPECT_EQ(written, 7);
}

TEST(Errors, NoLeftovers) {
    REQUIRE_BPF();
    const std::string output = scratch_file("report.jsonl");
    const std::filesystem::path folder = std::filesystem::path(output).parent_path();
    const auto files = [&] {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
        return count;
    };
    const std::size_t before = files();
    EXPECT_EQ(run_profiler({"--pid", own_pid(), "--output", output}).status, 68);
    EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace hostrange::test
