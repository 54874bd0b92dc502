// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/event_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "loader/cli/tell.h"
#include "loader/failure.h"

namespace hostrange {
namespace {

constexpr int kTickMs = 500;

sigset_t ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    // The terminal has gone; unless the user has said that this shall be ignored (nohup).
    struct sigaction action {};
    if (sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
    return set;
}

}  // namespace

void block_ending_signals() {
    const sigset_t set = ending_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
}

void unblock_ending_signals() {
    const sigset_t set = ending_signals();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

EventLoop::EventLoop(LiveProfile& profile) : profile_(profile), started_(std::chrono::steady_clock::now()) {
    const sigset_t set = ending_signals();
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) throw Failure(ExitCode::kInternal, "signalfd failed", "is the limit of open files reached?");
}

EventLoop::~EventLoop() {
    close(signals_);
    for (const auto& [process, descriptor] : descriptors_) close(descriptor);
}

bool EventLoop::follow(pid_t process) {
    if (is_followed(process)) return true;
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    if (descriptor < 0) return false;
    descriptors_[process] = descriptor;
    return true;
}

double EventLoop::elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void EventLoop::show_progress() {
    if (!isatty(STDERR_FILENO)) return;
    tell("\r{:6.1f} s  {} call trees, {} scopes ", elapsed_s(), profile_.trees_so_far(), profile_.scopes_so_far());
    std::fflush(stderr);
    progress_shown_ = true;
}

void EventLoop::run(std::optional<double> duration_s) {
    started_ = std::chrono::steady_clock::now();
    while (!stopped_) {
        int timeout_ms = kTickMs;
        if (duration_s) {
            const double left_ms = (*duration_s - elapsed_s()) * 1000;
            if (left_ms <= 0) break;
            timeout_ms = std::min<int>(timeout_ms, static_cast<int>(left_ms) + 1);
        }
        std::vector<pollfd> waiting = {{.fd = signals_, .events = POLLIN, .revents = 0},
                                       {.fd = profile_.session().events_descriptor(), .events = POLLIN, .revents = 0},
                                       {.fd = profile_.changes_descriptor(), .events = POLLIN, .revents = 0}};
        const std::size_t first_process = waiting.size();
        std::vector<pid_t> processes;
        for (const auto& [process, descriptor] : descriptors_) {
            waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
            processes.push_back(process);
        }
        const int ready = poll(waiting.data(), waiting.size(), timeout_ms);
        if (ready < 0 && errno != EINTR) break;
        if (ready > 0) {
            // First: a process may be about to map the new content.
            if (waiting[2].revents) profile_.let_go_of_overwritten_files();
            if (waiting[1].revents) profile_.session().read_events(on_event);
            for (std::size_t i = 0; i < processes.size(); ++i) {
                if (!waiting[first_process + i].revents) continue;
                close(descriptors_[processes[i]]);
                descriptors_.erase(processes[i]);
                on_gone(processes[i]);
            }
            signalfd_siginfo signal;
            while (read(signals_, &signal, sizeof signal) == sizeof signal)
                on_signal(static_cast<int>(signal.ssi_signo));
        }
        if (on_tick) on_tick();
        show_progress();
    }
    if (progress_shown_) tell("\r\033[K");
}

}  // namespace hostrange
