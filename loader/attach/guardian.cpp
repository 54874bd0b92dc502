// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/guardian.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "loader/failure.h"

namespace hostrange {
namespace {

// The programs that stop processes go away with the dead process' links, which the kernel may do a little later.
constexpr int kRounds = 20;
constexpr int kRoundMs = 50;

[[noreturn]] void guard(int watched_process, volatile std::uint64_t* stopped, std::size_t count) {
    prctl(PR_SET_NAME, "hostrange-guard");
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
    // Nothing may be kept open here: a copy of a link would keep its probes, a copy of a pipe its reader waiting.
    const int null = open("/dev/null", O_RDWR);
    for (int descriptor = 0; descriptor <= 2; ++descriptor) dup2(null, descriptor);
    dup2(watched_process, 3);
    syscall(SYS_close_range, 4u, ~0u, 0u);

    // A pidfd is readable when the process is gone and its descriptors are closed.
    pollfd gone{.fd = 3, .events = POLLIN, .revents = 0};
    while (poll(&gone, 1, -1) < 0 && errno == EINTR) {
    }
    // A process is listed before it is stopped, so an entry that is seen once may be needed once more.
    for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < count; ++i) {
            if (stopped[i] != 0) kill(static_cast<pid_t>(stopped[i]), SIGCONT);
        }
        poll(nullptr, 0, kRoundMs);
    }
    _exit(0);
}

}  // namespace

Guardian::Guardian(volatile std::uint64_t* stopped, std::size_t count) {
    const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    process_ = self < 0 ? -1 : fork();
    if (process_ < 0) {
        throw Failure(ExitCode::kInternal, std::string("starting the guardian process: ") + std::strerror(errno),
                      "is the limit of processes reached?");
    }
    if (process_ == 0) guard(self, stopped, count);
    close(self);
}

Guardian::~Guardian() {
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace hostrange
