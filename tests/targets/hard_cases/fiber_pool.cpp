// SPDX-License-Identifier: Apache-2.0
//
// Twelve ucontext fibers of one thread. They are resumed in rounds, in another order each time, and switch inside of
// their ranges: each runs task n times; task calls step, yields, and calls jumping, which leaves by a tail jump to
// step; step yields, calls thrower, catches what it throws, and yields again.
//
//   every mode  task 12n, jumping 12n, step 24n; all return. thrower 24n, all by exception
//
//   one_area    the stacks lie side by side in one static array
//   own_areas   a guard page lies between them

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <string>

#include "stacks.h"
#include "target.h"

using hard_cases::Arguments;
using hard_cases::Stack;
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

PROBED unsigned jumping(int i) {
    return step(i + 1);
}

PROBED unsigned task(int i) {
    const unsigned sum = step(i);
    yield();
    return stir(sum + jumping(i));
}

}  // namespace target

namespace {

void fiber_main() {
    for (int i = 0; i < running->repetitions; i++) running->sum += target::task(i);
    running->is_done = true;
    yield();
}

void run(const Arguments& arguments, const std::vector<Stack>& memory) {
    std::array<int, kFibers> order;
    for (int i = 0; i < kFibers; i++) {
        order[i] = i;
        Fiber& fiber = fibers[i];
        fiber.repetitions = arguments.repetitions;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = memory[i].lowest;
        fiber.context.uc_stack.ss_size = memory[i].size_bytes;
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

void run_in_one_area(const Arguments& arguments) {
    std::vector<Stack> memory;
    for (auto& stack : stacks) memory.push_back({stack, kStackBytes});
    run(arguments, memory);
}

void run_in_own_areas(const Arguments& arguments) {
    run(arguments, hard_cases::map_stacks(kFibers, hard_cases::Guards::kBetween));
}

constexpr hard_cases::Mode kModes[] = {{"one_area", run_in_one_area}, {"own_areas", run_in_own_areas}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
