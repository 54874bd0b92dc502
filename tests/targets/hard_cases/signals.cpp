// SPDX-License-Identifier: Apache-2.0
//
// Signals that arrive while ranges are open, raised by the thread itself so that the counts are exact. All runs on one
// thread whose stack lies between two other stacks, each in a memory area of its own. outer calls work, which raises
// SIGUSR1 half-way.
//
//   mode                  function             entered  returned  by exception  abandoned
//   same_stack            outer                n        n
//                         work                 n        n
//                         handler_body         n        n
//   alternate_below       as same_stack; the handler runs on a stack below the thread's
//   alternate_above       as same_stack; the handler runs on a stack above the thread's
//   nested                outer                n        n                               on the stack above
//                         work                 n        n
//                         raising_body         n        n                               raises SIGUSR2, whose
//                         nested_body          n        n                               handler calls nested_body
//   catch_in_handler      outer                n        n                               on the stack above
//                         work                 n        n
//                         catching_body        n        n
//                         thrower              n        0         n                     called by catching_body
//   siglongjmp            sigsetjmp_outer      n        n                               on the thread's stack
//                         work                 n        even                    odd
//                         jumping_body         n        even                    odd     jumps back to the outer one
//   siglongjmp_alternate  as siglongjmp; the handler runs on a stack above the thread's
//
// `done` says how many handlers ran on the stack they were meant for: n; 2n for `nested`.

#include <pthread.h>

#include <csetjmp>
#include <csignal>
#include <stdexcept>

#include "stacks.h"
#include "target.h"

using hard_cases::Arguments;
using hard_cases::Stack;
using hard_cases::stir;

namespace {

volatile sig_atomic_t call_number, on_expected_stack;
volatile unsigned handled_sum;
sigjmp_buf landing;
Stack handler_stack;

}  // namespace

namespace target {

PROBED unsigned handler_body(int i) {
    return stir(i);
}

PROBED unsigned nested_body(int i) {
    return stir(i);
}

PROBED unsigned raising_body(int i) {
    raise(SIGUSR2);
    return stir(i);
}

PROBED unsigned thrower(int i) {
    throw std::runtime_error("thrown by thrower " + std::to_string(i));
}

PROBED unsigned catching_body(int i) {
    try {
        return thrower(i);
    } catch (const std::exception&) {
        return stir(i);
    }
}

PROBED unsigned jumping_body(int i) {
    if (hard_cases::is_odd(i)) siglongjmp(landing, 1);
    return stir(i);
}

PROBED unsigned work(int i) {
    const unsigned sum = stir(i);
    raise(SIGUSR1);
    return stir(sum);
}

PROBED unsigned outer(int i) {
    return stir(work(i));
}

PROBED unsigned sigsetjmp_outer(int i) {
    if (sigsetjmp(landing, 1) != 0) return 1;
    return stir(work(i));
}

}  // namespace target

namespace {

using Step = unsigned (*)(int);

template <Step body>
void handle(int) {
    if (handler_stack.contains(__builtin_frame_address(0))) on_expected_stack = on_expected_stack + 1;
    handled_sum = handled_sum + body(call_number);
}

void install(int signal_number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(signal_number, &action, nullptr);
}

enum class Place { kThreadStack, kBelow, kAbove };

struct Plan {
    int repetitions;
    Step step;
    bool alternate;
    unsigned sum;
};

void* thread_main(void* argument) {
    Plan& plan = *static_cast<Plan*>(argument);
    if (plan.alternate) {
        const stack_t alternate{handler_stack.lowest, 0, handler_stack.size_bytes};
        sigaltstack(&alternate, nullptr);
    }
    for (int i = 0; i < plan.repetitions; i++) {
        call_number = i;
        plan.sum += plan.step(i);
    }
    return nullptr;
}

template <Place place, Step body, Step step = target::outer>
void run(const Arguments& arguments) {
    const std::vector<Stack> stacks = hard_cases::map_stacks(3, hard_cases::Guards::kBetween);
    const Stack thread_stack = stacks[1];
    handler_stack = stacks[place == Place::kBelow ? 0 : place == Place::kAbove ? 2 : 1];
    install(SIGUSR1, handle<body>);
    install(SIGUSR2, handle<target::nested_body>);

    Plan plan{arguments.repetitions, step, place != Place::kThreadStack, 0};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, thread_stack.lowest, thread_stack.size_bytes);
    pthread_t thread;
    const int error = pthread_create(&thread, &attributes, thread_main, &plan);
    if (error != 0) {
        std::fprintf(stderr, "pthread_create: %s\n", std::strerror(error));
        std::exit(1);
    }
    pthread_join(thread, nullptr);
    hard_cases::print_done("checksum=%u handlers_on_expected_stack=%d", plan.sum + handled_sum,
                           static_cast<int>(on_expected_stack));
}

constexpr hard_cases::Mode kModes[] = {
    {"same_stack", run<Place::kThreadStack, target::handler_body>},
    {"alternate_below", run<Place::kBelow, target::handler_body>},
    {"alternate_above", run<Place::kAbove, target::handler_body>},
    {"nested", run<Place::kAbove, target::raising_body>},
    {"catch_in_handler", run<Place::kAbove, target::catching_body>},
    {"siglongjmp", run<Place::kThreadStack, target::jumping_body, target::sigsetjmp_outer>},
    {"siglongjmp_alternate", run<Place::kAbove, target::jumping_body, target::sigsetjmp_outer>},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
