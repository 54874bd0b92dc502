// SPDX-License-Identifier: Apache-2.0
//
// fork, vfork and exec inside ranges. Children are waited for one by one, and `done` says how many ended with status 0.
//
//   mode              function         process   entered  returned  abandoned
//   fork              forking_outer    parent    n        n
//                     forking_inner    parent    n        n
//                     forking_outer    children  0        n                    each child returns through both and ends
//                     forking_inner    children  0        n                    outside of them
//   fork_continue     as fork; then each child calls EXTRA = c times (default 3)
//                     child_work       children  n c      n c
//   vfork_exec        vforking_inner   parent    n        n                    the child, on the same stack, executes
//                                                                              /bin/true
//   vfork_call        vfork_calling    parent    n        n                    the child, in the parent's memory and on
//                     child_work       children  n        n                    its stack, calls child_work and ends
//   exec              leaf             itself    n + 1    n + 1                once per image of the program
//                     executing_outer  itself    n        0         n          each image but the last executes the
//                     executing_inner  itself    n        0         n          program anew: same pid, new image
//   exec_from_thread  as exec, but a second thread does it while the main thread is in
//                     waiting_outer    itself    n        0         n          exec ends the main thread

#include <pthread.h>
#include <sys/wait.h>

#include <filesystem>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace {

// What the images of `exec` pass on.
struct Execution {
    std::string mode;
    int remaining = 0, total = 0;
} execution;

bool ended_well(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

[[noreturn]] void execute_again() {
    // Not /proc/self/exe as it is: the process would be called "exe".
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    const std::string remaining = std::to_string(execution.remaining - 1), total = std::to_string(execution.total);
    setenv(hard_cases::kContinued, "1", 1);
    execl(program.c_str(), program.c_str(), execution.mode.c_str(), remaining.c_str(), total.c_str(), nullptr);
    std::perror("exec of itself");
    _exit(1);
}

}  // namespace

namespace target {

PROBED unsigned leaf(int i) {
    return stir(i);
}

PROBED unsigned child_work(int i) {
    return stir(i);
}

// These two return what fork() did.
PROBED pid_t forking_inner(int) {
    return hard_cases::keep(fork());
}

PROBED pid_t forking_outer(int i) {
    return hard_cases::keep(forking_inner(i));
}

PROBED bool vforking_inner(int) {
    const pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", nullptr);
        _exit(1);
    }
    return ended_well(child);
}

PROBED bool vfork_calling(int i) {
    const pid_t child = vfork();
    if (child == 0) {
        child_work(i);
        _exit(0);
    }
    return ended_well(child);
}

PROBED unsigned executing_inner(int i) {
    if (i >= 0) execute_again();
    return stir(i);
}

PROBED unsigned executing_outer(int i) {
    return stir(executing_inner(i));
}

}  // namespace target

namespace {

void* execute_in_thread(void*) {
    target::executing_outer(execution.remaining);
    return nullptr;
}

}  // namespace

namespace target {

PROBED unsigned waiting_outer(int i) {
    pthread_t thread;
    pthread_create(&thread, nullptr, execute_in_thread, nullptr);
    pthread_join(thread, nullptr);
    return stir(i);
}

}  // namespace target

namespace {

void fork_children(const Arguments& arguments, int calls_of_child) {
    unsigned children = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        const pid_t child = target::forking_outer(i);
        if (child == 0) {
            for (int call = 0; call < calls_of_child; call++) target::child_work(call);
            _exit(0);
        }
        children += ended_well(child);
    }
    hard_cases::print_done("children=%u", children);
}

void run_fork(const Arguments& arguments) {
    fork_children(arguments, 0);
}

// One child, that says who it is and waits to be ended.
void run_fork_wait(const Arguments& arguments) {
    const unsigned sum = target::child_work(arguments.repetitions);
    const pid_t child = fork();
    if (child == 0) {
        std::printf("child %d\n", getpid());
        std::fflush(stdout);
        while (true) pause();
    }
    waitpid(child, nullptr, 0);
    hard_cases::print_done("checksum=%u", sum);
}

void run_fork_continue(const Arguments& arguments) {
    fork_children(arguments, arguments.extra_number(3));
}

template <bool (*step)(int)>
void run_vfork(const Arguments& arguments) {
    unsigned children = 0;
    for (int i = 0; i < arguments.repetitions; i++) children += step(i);
    hard_cases::print_done("children=%u", children);
}

template <unsigned (*step)(int)>
void run_exec(const Arguments& arguments) {
    execution = {arguments.mode, arguments.repetitions, arguments.extra_number(arguments.repetitions)};
    const unsigned sum = target::leaf(execution.total);
    if (execution.remaining > 0) step(execution.remaining);
    hard_cases::print_done("checksum=%u executions=%d", sum, execution.total);
}

constexpr hard_cases::Mode kModes[] = {
    {"fork", run_fork},
    {"fork_continue", run_fork_continue},
    {"fork_wait", run_fork_wait},
    {"vfork_exec", run_vfork<target::vforking_inner>},
    {"vfork_call", run_vfork<target::vfork_calling>},
    {"exec", run_exec<target::executing_outer>},
    {"exec_from_thread", run_exec<target::waiting_outer>},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
