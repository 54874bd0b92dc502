// SPDX-License-Identifier: Apache-2.0
//
// Threads that end inside ranges. Except in `left_open`, n threads run one after the other, each joined before the
// next is started; outer calls middle calls inner. outer and middle each have a local object, and `done` says how many
// of them were destroyed.
//
//   mode                 function         entered  returned  abandoned  open
//   returns              outer            n        n                          destroyed=2n
//                        middle           n        n
//                        inner            n        n
//   pthread_exit         outer            n        0         n                destroyed=2n
//                        middle           n        0         n
//                        inner            n        0         n
//   pthread_exit_caught  catching_outer   n        0         n                destroyed=2n; catches the unwinding by
//                        middle           n        0         n                `catch (...)` and throws it on: middle
//                        inner            n        0         n                and inner end by exception there
//   cancel               outer            n        0         n                destroyed=2n
//                        middle           n        0         n
//                        inner            n        0         n
//   system_exit          outer            n        0         n                destroyed=0
//                        middle           n        0         n
//                        inner            n        0         n
//   left_open            outer            n        0         0          n     destroyed=0; n threads wait in inner, all
//                        middle           n        0         0          n     at once, when the process ends
//                        inner            n        0         0          n
//   process_exit         outer            1        0         0          1     destroyed=0; the main thread calls exit
//                        middle           1        0         0          1     in inner, REPETITIONS is not used
//                        inner            1        0         0          1

#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>
#include <latch>
#include <memory>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace {

std::atomic<unsigned> destroyed, checksum;

struct Guard {
    ~Guard() { destroyed++; }
};

// What inner does half-way.
void (*leave)() = nullptr;

}  // namespace

namespace target {

PROBED unsigned inner(int i) {
    leave();
    return stir(i);
}

PROBED unsigned middle(int i) {
    Guard guard;
    return stir(inner(i));
}

PROBED unsigned outer(int i) {
    Guard guard;
    return stir(middle(i));
}

PROBED unsigned catching_outer(int i) {
    Guard guard;
    try {
        return stir(middle(i));
    } catch (...) {
        throw;
    }
}

}  // namespace target

namespace {

using Step = unsigned (*)(int);

template <Step step>
void* thread_main(void* argument) {
    checksum += step(static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
    return nullptr;
}

pthread_t start_thread(int i, void* (*main)(void*)) {
    pthread_t thread;
    const int error = pthread_create(&thread, nullptr, main, reinterpret_cast<void*>(static_cast<std::intptr_t>(i)));
    if (error != 0) {
        std::fprintf(stderr, "pthread_create: %s\n", std::strerror(error));
        std::exit(1);
    }
    return thread;
}

void report() {
    hard_cases::print_done("checksum=%u destroyed=%u", checksum.load(), destroyed.load());
}

template <void (*leave_by)(), Step step = target::outer>
void run(const Arguments& arguments) {
    leave = leave_by;
    for (int i = 0; i < arguments.repetitions; i++) pthread_join(start_thread(i, thread_main<step>), nullptr);
    report();
}

void go_on() {}
void exit_thread() {
    pthread_exit(nullptr);
}
void cancel_thread() {
    pthread_cancel(pthread_self());
    pthread_testcancel();
}
void exit_by_system_call() {
    syscall(SYS_exit, 0);
}

std::unique_ptr<std::latch> all_inside;

void wait_for_ever() {
    all_inside->count_down();
    for (;;) pause();
}

void run_left_open(const Arguments& arguments) {
    all_inside = std::make_unique<std::latch>(arguments.repetitions);
    leave = wait_for_ever;
    for (int i = 0; i < arguments.repetitions; i++) pthread_detach(start_thread(i, thread_main<target::outer>));
    all_inside->wait();
    report();
    all_inside.release();  // the threads may still be in count_down()
}

void report_and_exit() {
    report();
    std::exit(0);
}

void run_process_exit(const Arguments&) {
    leave = report_and_exit;
    checksum += target::outer(0);
}

constexpr hard_cases::Mode kModes[] = {
    {"returns", run<go_on>},
    {"pthread_exit", run<exit_thread>},
    {"pthread_exit_caught", run<exit_thread, target::catching_outer>},
    {"cancel", run<cancel_thread>},
    {"system_exit", run<exit_by_system_call>},
    {"left_open", run_left_open},
    {"process_exit", run_process_exit},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
