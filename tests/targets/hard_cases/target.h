// SPDX-License-Identifier: Apache-2.0
#pragma once

// The protocol of every program in this folder:
//
//   hard_case_TOPIC MODE REPETITIONS [EXTRA]
//
// prints "ready PID", reads one line from standard input (its end releases the program as well), runs, and prints one
// line "done NAME=VALUE ...", the same one whether probed or not; exit status 0. With TARGET_NO_WAIT=1 in the
// environment it does not read; with TARGET_CHANGES_MEMORY=1 another thread maps and unmaps memory meanwhile. All
// functions worth probing are in namespace `target`; the comment at the top of each program says per mode how often
// each is entered and how it is left. There
//
//   n            is REPETITIONS, and calls are numbered 0 to n - 1; odd and even count those numbers
//                (odd = n / 2 rounded down, even = n - odd)
//   entered      times the function's first instruction is reached
//   returned     left by `ret`
//   by exception left by a C++ exception that is caught further out
//   abandoned    never left: longjmp, thread exit, forced unwinding, exec
//   open         not left when the process ends
//
// and a function that always returns is listed with one number.

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

// A function that stays one function with one entry: neither inlined, cloned, folded, nor known to its callers.
#if defined(__clang__)
#define PROBED [[gnu::noinline, gnu::used]]
#else
#define PROBED [[gnu::noipa, gnu::used]]
#endif

namespace hard_cases {

struct Arguments {
    std::string program;  // argv[0]
    std::string mode;
    int repetitions = 0;
    const char* extra = nullptr;  // argv[3]

    int extra_number(int otherwise) const { return extra ? std::atoi(extra) : otherwise; }
};

struct Mode {
    const char* name;
    void (*run)(const Arguments&);
};

// `value`, which the compiler must take for any. What comes before `return keep(...)` is made neither a tail call nor,
// in a recursion, a loop.
template <typename Value>
inline Value keep(Value value) {
    asm volatile("" : "+r"(value));
    return value;
}

// The bit of work that bodies do: one step of a linear congruential generator.
inline unsigned stir(unsigned value) {
    return keep(value) * 1664525u + 1013904223u;
}

inline bool is_odd(int number) {
    return number % 2 != 0;
}

[[gnu::format(printf, 1, 2)]] inline void print_done(const char* format, ...) {
    std::va_list values;
    va_start(values, format);
    std::fputs("done ", stdout);
    std::vprintf(format, values);
    std::putchar('\n');
    std::fflush(stdout);
    va_end(values);
}

// Unbuffered, so that nothing read ahead is lost in an exec or seen twice after a fork.
inline void read_line() {
    char character = 0;
    while (read(STDIN_FILENO, &character, 1) == 1 && character != '\n') {
    }
}

// True once standard input has ended; what arrives before its end is dropped. Never blocks.
inline bool input_ended() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 0) <= 0) return false;
    char dropped[256];
    return read(STDIN_FILENO, dropped, sizeof dropped) <= 0;
}

// Set for the program that a probed function turned itself into by exec: no second "ready", no waiting.
inline constexpr char kContinued[] = "TARGET_CONTINUED";

// Maps and unmaps memory as fast as it can, as allocators of large blocks do, while the target runs.
inline void change_memory_meanwhile() {
    std::thread([] {
        constexpr std::size_t kBytes = 1u << 20, kPage = 4096;
        for (;;) {
            void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED) continue;
            for (std::size_t i = 0; i < kBytes; i += kPage) static_cast<volatile char*>(memory)[i] = 1;
            munmap(memory, kBytes);
        }
    }).detach();
}

inline int run_target(int argc, char** argv, std::span<const Mode> modes) {
    const Mode* chosen = nullptr;
    for (const Mode& mode : modes) {
        if (argc >= 3 && std::strcmp(argv[1], mode.name) == 0) chosen = &mode;
    }
    if (!chosen) {
        std::fprintf(stderr, "usage: %s MODE REPETITIONS [EXTRA], where MODE is one of\n", argv[0]);
        for (const Mode& mode : modes) std::fprintf(stderr, "  %s\n", mode.name);
        return 2;
    }
    const Arguments arguments{argv[0], argv[1], std::atoi(argv[2]), argc > 3 ? argv[3] : nullptr};
    if (!std::getenv(kContinued)) {
        std::printf("ready %d\n", static_cast<int>(getpid()));
        std::fflush(stdout);
        const char* no_wait = std::getenv("TARGET_NO_WAIT");
        if (!no_wait || std::strcmp(no_wait, "1") != 0) read_line();
    }
    if (std::getenv("TARGET_CHANGES_MEMORY")) change_memory_meanwhile();
    chosen->run(arguments);
    return 0;
}

}  // namespace hard_cases
