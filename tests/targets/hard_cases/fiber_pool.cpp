// SPDX-License-Identifier: Apache-2.0
//
// Twelve ucontext fibers of one thread, their stacks side by side in one static array. They are resumed in rounds, in
// another order each time, and switch inside of their ranges: each runs task n times; task calls step twice and yields
// in between; step yields, calls thrower, catches what it throws, and yields again.
//
//   one_area  task 12n, step 24n; both return. thrower 24n, all by exception

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <string>

#include "target.h"

using hard_cases::Arguments;
using hard_cases::stir;

namespace {

constexpr int kFibers = 12;
constexpr std::size_t kStackBytes = 64 * 1024;

struct Fiber {
    ucontext_t context;
    int repetitions = 0;
    unsigned sum = 0;
    bool is_done = false;
};

alignas(16) char stacks[kFibers][kStackBytes];
std::array<Fiber, kFibers> fibers;
ucontext_t scheduler;
Fiber* running;

void yield() {
    swapcontext(&running->context, &scheduler);
}

}  // namespace

namespace target {

PROBED unsigned thrower(int i) {
    throw std::runtime_error("thrown by thrower " + std::to_string(i));
}

PROBED unsigned step(int i) {
    unsigned sum = stir(i);
    yield();
    try {
        sum += thrower(i);
    } catch (const std::runtime_error& error) {
        sum += error.what()[0];
    }
    yield();
    return stir(sum);
}

PROBED unsigned task(int i) {
    const unsigned sum = step(i);
    yield();
    return stir(sum + step(i + 1));
}

}  // namespace target

namespace {

void fiber_main() {
    for (int i = 0; i < running->repetitions; i++) running->sum += target::task(i);
    running->is_done = true;
    yield();
}

void run(const Arguments& arguments) {
    std::array<int, kFibers> order;
    for (int i = 0; i < kFibers; i++) {
        order[i] = i;
        Fiber& fiber = fibers[i];
        fiber.repetitions = arguments.repetitions;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks[i];
        fiber.context.uc_stack.ss_size = kStackBytes;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, fiber_main, 0);
    }
    std::minstd_rand random;
    while (std::any_of(fibers.begin(), fibers.end(), [](const Fiber& fiber) { return !fiber.is_done; })) {
        for (int i = kFibers - 1; i > 0; i--) std::swap(order[i], order[random() % (i + 1)]);
        for (const int number : order) {
            running = &fibers[number];
            if (!running->is_done) swapcontext(&scheduler, &running->context);
        }
    }
    unsigned sum = 0;
    for (const Fiber& fiber : fibers) sum += fiber.sum;
    hard_cases::print_done("checksum=%u", sum);
}

constexpr hard_cases::Mode kModes[] = {{"one_area", run}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
