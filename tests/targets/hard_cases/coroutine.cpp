// SPDX-License-Identifier: Apache-2.0
//
// A C++20 generator of EXTRA = v values (default 5); one generator per repetition, drained by calls of consume, each of
// which resumes it once. The generator calls produce for each value.
//
//   mode              function         entered    returned   by exception
//   generator         consume          n (v + 1)  n (v + 1)                the last one finds the end
//                     produce          n v        n v
//   exception         consume          n v        n (v - 1)  n             produce throws for the last value, through
//                     produce          n v        n (v - 1)  n             the coroutine; a plain caller catches
//   probed_coroutine  consume          n (v + 1)  n (v + 1)
//                     produce          n v        n v
//                     generate(int)    n          n                        what the coroutine's caller calls
//                     generate.actor   n (v + 2)  n (v + 1)                its body; n times it leaves by a jump into
//                                                                          operator delete
//                     generate.destroy n          0                        leaves by a jump into generate.actor
//
// The last three are what g++ 12 makes of the coroutine target::generate; the demangled names are
// target::generate(int), target::generate(...) [clone .actor] and target::generate(...) [clone .destroy].

#include <coroutine>
#include <exception>
#include <stdexcept>
#include <utility>

#include "target.h"

namespace hard_cases {

class Generator {
public:
    struct promise_type {
        unsigned value = 0;

        Generator get_return_object() { return Generator(Handle::from_promise(*this)); }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(unsigned yielded) {
            value = yielded;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    using Handle = std::coroutine_handle<promise_type>;

    explicit Generator(Handle handle) : handle_(handle) {}
    Generator(Generator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Generator(const Generator&) = delete;
    ~Generator() {
        if (handle_) handle_.destroy();
    }

    // False at the end.
    bool advance() {
        handle_.resume();
        return !handle_.done();
    }
    unsigned value() const { return handle_.promise().value; }

private:
    Handle handle_;
};

}  // namespace hard_cases

using hard_cases::Arguments;
using hard_cases::Generator;
using hard_cases::stir;

namespace target {

// Throws for value 0.
PROBED unsigned produce(int value) {
    if (value == 0) throw std::runtime_error("thrown by produce");
    return stir(value);
}

// Adds the next value to `sum`; false at the end.
PROBED bool consume(Generator& generator, unsigned& sum) {
    const bool found = generator.advance();
    if (found) sum = stir(sum + generator.value());
    return found;
}

[[gnu::noinline]] Generator generate(int values) {
    for (int value = values; value > 0; value--) co_yield produce(value);
}

}  // namespace target

namespace {

Generator count_down(int from, int to) {
    for (int value = from; value >= to; value--) co_yield target::produce(value);
}

void drain(Generator generator, unsigned& sum) {
    while (target::consume(generator, sum)) {
    }
}

void run_generator(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) drain(count_down(arguments.extra_number(5), 1), sum);
    hard_cases::print_done("checksum=%u", sum);
}

void run_exception(const Arguments& arguments) {
    unsigned sum = 0, caught = 0;
    for (int i = 0; i < arguments.repetitions; i++) {
        try {
            drain(count_down(arguments.extra_number(5) - 1, 0), sum);
        } catch (const std::exception&) {
            caught++;
        }
    }
    hard_cases::print_done("checksum=%u caught_by_caller=%u", sum, caught);
}

void run_probed_coroutine(const Arguments& arguments) {
    unsigned sum = 0;
    for (int i = 0; i < arguments.repetitions; i++) drain(target::generate(arguments.extra_number(5)), sum);
    hard_cases::print_done("checksum=%u", sum);
}

constexpr hard_cases::Mode kModes[] = {
    {"generator", run_generator}, {"exception", run_exception}, {"probed_coroutine", run_probed_coroutine}};

}  // namespace

int main(int argc, char** argv) {
    return hard_cases::run_target(argc, argv, kModes);
}
