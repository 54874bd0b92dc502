// SPDX-License-Identifier: Apache-2.0
//
// Two ucontext fibers of one thread that leave their ranges in the order in which they entered them. Per repetition
// outer, on the thread's own stack, switches: first_fiber entered, second_fiber entered, first_fiber left, second_fiber
// left. Each fiber calls inner before it yields and after.
//
//   every mode  outer n, first_fiber n, second_fiber n, inner 4n; all return
//
//   ascending                  first_fiber's stack lies below second_fiber's, a guard page between them
//   descending                 first_fiber's stack lies above second_fiber's, a guard page between them
//   shared_mapping             as ascending, but both stacks are one memory area
//   shared_mapping_descending  as descending, but both stacks are one memory area
//
// In the shared mappings, entering second_fiber on the higher stack looks as if first_fiber had been unwound;
// descending, it is the call of inner after first_fiber was resumed that makes second_fiber look so.

#include <ucontext.h>

#include "stacks.h"
#include "target.h"

using hard_cases::Arguments;
using hard_cases::Stack;
using hard_cases::stir;

namespace {

struct Fiber {
    ucontext_t context;
    unsigned sum = 0;
};

Fiber first, second;
ucontext_t scheduler;

void yield_from(Fiber& fiber) {
    swapcontext(&fiber.context, &scheduler);
}
void resume(Fiber& fiber) {
    swapcontext(&scheduler, &fiber.context);
}

}  // namespace

namespace target {

PROBED unsigned inner(int i) {
    return stir(i);
}

PROBED unsigned first_fiber(int i) {
    const unsigned sum = inner(i);
    yield_from(first);
    return stir(sum + inner(i + 1));
}

PROBED unsigned second_fiber(int i) {
    const unsigned sum = inner(i + 2);
    yield_from(second);
    return stir(sum + inner(i + 3));
}

PROBED unsigned outer(int i) {
    resume(first);
    resume(second);
    resume(first);
    resume(second);
    return stir(i);
}

}  // namespace target

namespace {

void first_main() {
    for (int i = 0;; i++) {
        first.sum += target::first_fiber(i);
        yield_from(first);
    }
}

void second_main() {
    for (int i = 0;; i++) {
        second.sum += target::second_fiber(i);
        yield_from(second);
    }
}

void prepare(Fiber& fiber, const Stack& stack, void (*main)()) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack.lowest;
    fiber.context.uc_stack.ss_size = stack.size_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, main, 0);
}

enum class Order { kAscending, kDescending };

template <Order order, hard_cases::Guards guards>
void run(const Arguments& arguments) {
    const std::vector<Stack> stacks = hard_cases::map_stacks(2, guards);
    prepare(first, stacks[order == Order::kAscending ? 0 : 1], first_main);
    prepare(second, stacks[order == Order::kAscending ? 1 : 0], second_main);
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) sum += target::outer(i);
    hard_cases::print_done("checksum=%u", sum + first.sum + second.sum);
}

constexpr hard_cases::Mode kModes[] = {
    {"ascending", run<Order::kAscending, hard_cases::Guards::kBetween>},
    {"descending", run<Order::kDescending, hard_cases::Guards::kBetween>},
    {"shared_mapping", run<Order::kAscending, hard_cases::Guards::kOnlyAround>},
    {"shared_mapping_descending", run<Order::kDescending, hard_cases::Guards::kOnlyAround>},
};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
