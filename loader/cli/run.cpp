// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "loader/cli/event_loop.h"
#include "loader/cli/invoking_user.h"
#include "loader/cli/live_profile.h"
#include "loader/cli/options.h"
#include "loader/cli/tell.h"
#include "loader/failure.h"

namespace hostrange {
namespace {

constexpr int kKilledBySignal = 128;  // and the signal's number, as shells do

// A command that has been forked but waits before exec.
class WaitingCommand {
public:
    // `report`: where the report will be, absolute; the command finds it in HOSTRANGE_OUTPUT. Empty: not said.
    WaitingCommand(const std::vector<std::string>& command, const std::string& report) {
        int go[2], failed[2];
        if (pipe2(go, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) fail("pipe");
        const std::optional<InvokingUser> user = invoking_user();
        process_ = fork();
        if (process_ < 0) fail("fork");
        if (process_ == 0) {
            close(go[1]);
            char word;
            // The other end closes without a word if the profiler gives up.
            if (read(go[0], &word, 1) != 1) _exit(EXIT_FAILURE);
            if (!report.empty()) setenv("HOSTRANGE_OUTPUT", report.c_str(), 1);
            become_and_execute(command, user, failed[1]);
        }
        close(go[0]);
        close(failed[1]);
        go_ = go[1];
        failed_ = failed[0];
    }
    ~WaitingCommand() {
        if (go_ >= 0) close(go_);
        if (failed_ >= 0) close(failed_);
    }
    WaitingCommand(const WaitingCommand&) = delete;
    WaitingCommand& operator=(const WaitingCommand&) = delete;

    pid_t process() const { return process_; }

    void go() {
        const char word = 1;
        if (write(go_, &word, 1) != 1) fail("releasing the command");
        close(go_);
        go_ = -1;
    }

    // The errno value if exec failed; 0 if it worked. After go(); waits until it is known, which takes no time: the
    // descriptor closes with exec.
    int exec_error() {
        int error = 0;
        return read(failed_, &error, sizeof error) == sizeof error ? error : 0;
    }

private:
    [[noreturn]] static void fail(const char* what) {
        throw Failure(ExitCode::kInternal, fmt::format("starting the command: {}: {}", what, std::strerror(errno)),
                      "is the limit of processes or open files reached?");
    }

    [[noreturn]] static void become_and_execute(const std::vector<std::string>& command,
                                                const std::optional<InvokingUser>& user, int failed) {
        unblock_ending_signals();
        std::signal(SIGPIPE, SIG_DFL);
        int error = 0;
        if (user && !become(*user)) error = errno;
        if (error == 0) {
            std::vector<char*> arguments;
            for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            error = errno;
        }
        const ssize_t written = write(failed, &error, sizeof error);
        _exit(written == sizeof error ? EXIT_SUCCESS : EXIT_FAILURE);
    }

    pid_t process_ = -1;
    int go_ = -1, failed_ = -1;
};

int exit_status(int status) {
    return WIFSIGNALED(status) ? kKilledBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int profile_command(const ProfileOptions& options) {
    block_ending_signals();
    LiveProfile profile(options);
    // Both are forked before this process has threads.
    profile.session().start_guardian();
    const bool has_file = !options.output.empty() && options.output != "-";
    WaitingCommand command(options.command, has_file ? std::filesystem::absolute(options.output).string() : "");
    EventLoop loop(profile);

    const pid_t process = command.process();
    bool ended = false;
    int status = 0, signals = 0;
    loop.on_signal = [&](int signal) {
        // Ctrl-C reaches the command too, through the terminal; give it the time to end by itself. The others
        // were meant for this process alone: pass them on.
        if (signal != SIGINT) kill(process, signal);
        if (++signals > 1) {
            loop.stop();
        } else {
            tell("hostrange-bpf: waiting for `{}` to end; Ctrl-C again reports without that\n", options.command[0]);
        }
    };
    loop.on_gone = [&](pid_t gone) {
        profile.forget_process(gone);
        if (gone != process) return;
        ended = true;
        loop.stop();
    };
    loop.on_event = [&](const hostrange_event& event) {
        if (profile.pause_or_resume(event)) return;
        const pid_t other = static_cast<pid_t>(event.process_id);
        loop.follow(other);
        profile.attach_process_again(event);
        if (event.stopped) profile.session().let_run(event);
    };

    loop.follow(process);
    profile.session().watch(process, true);
    profile.start_reading();
    profile.start_recording(false);
    command.go();
    if (const int error = command.exec_error()) {
        waitpid(process, &status, 0);
        throw Failure(error == ENOENT ? ExitCode::kCommandNotFound : ExitCode::kCommandNotExecuted,
                      fmt::format("{}: {}", options.command[0], std::strerror(error)),
                      error == ENOENT ? "sudo has a PATH of its own; a path to the file always works"
                                      : "is it a program, and may you execute it?");
    }
    tell("hostrange-bpf: profiling `{}` (process {}, {})\n", fmt::join(options.command, " "), process,
         attach_mode_name(profile.session().mode()));
    loop.run(options.duration_s);

    const double duration_s = loop.elapsed_s();
    profile.stop();
    profile.session().let_all_run();
    if (ended) {
        waitpid(process, &status, 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && profile.has_return_probes()) {
            profile.add_warning(
                "the command was aborted (SIGABRT) with uretprobes in place: an exception that meets one aborts the "
                "program; profile with --return-probes=ret");
        }
    }
    profile.report(duration_s);
    if (!ended) {
        tell("hostrange-bpf: the report is made; `{}` (process {}) goes on unprobed\n", options.command[0], process);
        unblock_ending_signals();
        while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
        }
    }
    return exit_status(status);
}

}  // namespace hostrange
