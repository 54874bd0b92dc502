// SPDX-License-Identifier: Apache-2.0
// The program that is probed by the overhead benchmark: one outer scope with three middle ones with two inner ones
// each, ten scopes an iteration, that do next to nothing. Compiled with an exact five-byte nop at each function's
// entry.
//
// Reads commands, one a line: "run N" does N iterations and prints the nanoseconds they took; "pace RATE SECONDS" tries
// to do RATE scopes a second for that long and prints the scopes done and the nanoseconds taken.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace nest {

volatile unsigned sink;
constexpr int kScopesPerIteration = 10;

__attribute__((noipa)) void inner(unsigned value) {
    sink = sink + value;
}

__attribute__((noipa)) void middle(unsigned value) {
    inner(value);
    inner(value + 1);
    sink = sink + value;
}

__attribute__((noipa)) void outer(unsigned value) {
    middle(value);
    middle(value + 1);
    middle(value + 2);
    sink = sink + value;
}

std::uint64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::uint64_t run(unsigned iterations) {
    const std::uint64_t start = now_ns();
    for (unsigned i = 0; i < iterations; ++i) outer(i);
    return now_ns() - start;
}

void pace(double scopes_per_s, double seconds) {
    const std::uint64_t start = now_ns();
    const double ns_per_iteration = 1e9 * kScopesPerIteration / scopes_per_s;
    std::uint64_t iterations = 0;
    while (now_ns() - start < seconds * 1e9) {
        while (now_ns() - start < iterations * ns_per_iteration) {
        }
        outer(static_cast<unsigned>(iterations));
        ++iterations;
    }
    std::printf("%llu %llu\n", static_cast<unsigned long long>(iterations * kScopesPerIteration),
                static_cast<unsigned long long>(now_ns() - start));
}

}  // namespace nest

int main() {
    std::printf("ready\n");
    std::fflush(stdout);
    char line[128];
    while (std::fgets(line, sizeof line, stdin)) {
        unsigned iterations = 0;
        double rate = 0, seconds = 0;
        if (std::sscanf(line, "run %u", &iterations) == 1) {
            std::printf("%llu\n", static_cast<unsigned long long>(nest::run(iterations)));
        } else if (std::sscanf(line, "pace %lf %lf", &rate, &seconds) == 2) {
            nest::pace(rate, seconds);
        }
        std::fflush(stdout);
    }
    return 0;
}
