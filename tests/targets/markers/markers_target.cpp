// SPDX-License-Identifier: Apache-2.0
// Uses every marker, around calls of probed functions. Prints "ready", waits for a line (unless TARGET_NO_WAIT), runs
// the scenario named by its first argument, prints "done".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hostrange/markers.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace marked {

volatile int work;

// What the probe map of the tests calls ranges.
__attribute__((noinline)) void construct() {
    work = work + 1;
}
__attribute__((noinline)) void call(bool miss) {
    if (miss) construct();
    work = work + 1;
}
__attribute__((noinline)) void refuse() {
    asm volatile("");
    throw std::runtime_error("refused");
}

}  // namespace marked

namespace {

void ranges(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        hostrange::Scope outer("outer");
        for (int j = 0; j < 3; ++j) {
            // Both begin and end in one function: their sites see one stack pointer.
            hostrange::Scope inner("inner"), innermost("innermost");
            marked::call(i == 0 && j == 0);
        }
    }
}

// The function that is called throws through ranges.
void throwing(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        try {
            hostrange::Scope outer("outer");
            hostrange::Scope inner("inner");
            marked::refuse();
        } catch (const std::runtime_error&) {
        }
    }
}

// Two ranges that overlap without nesting.
void overlapping(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        hostrange_range_begin("first");
        marked::call(false);
        hostrange_range_begin("second");
        hostrange_range_end("first");
        marked::call(false);
        hostrange_range_end("second");
    }
}

void detached(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        hostrange_range_begin_detached("one", 2 * i + 1);
        hostrange_range_begin_detached("other", 2 * i + 2);
        marked::call(false);
        // Ends in another thread.
        std::thread([i] { hostrange_range_end_detached("one", 2 * i + 1); }).join();
        hostrange_range_end_detached("other", 2 * i + 2);
    }
    hostrange_range_begin_detached("one", 999999);  // stays open
}

void cases(unsigned count) {
    hostrange_session_begin("test");
    for (unsigned i = 0; i < count; ++i) {
        const std::string nodeid = "tests/test_x.py::test[" + std::to_string(i) + "]";
        const std::uint64_t number = hostrange_case_begin(nodeid.c_str(), "add", "cpu");
        marked::call(true);  // outside of phases
        hostrange_phase_begin("cold");
        marked::call(false);
        hostrange_phase_end("cold");
        marked::call(false);
        hostrange_phase_begin("warm");
        for (int j = 0; j < 5; ++j) marked::call(false);
        hostrange_phase_end("warm");
        hostrange_phase_begin("other");
        marked::call(false);
        hostrange_phase_end("other");
        hostrange_measurement("end_to_end", 5, 1234.5, 1000.25);
        hostrange_case_end(number);
        marked::call(false);  // outside of cases
    }
    hostrange_session_end();
}

// No phases: the first call is cold, and one that constructs. Twice the same case.
void plain_cases(unsigned) {
    for (int run = 0; run < 2; ++run) {
        const std::uint64_t number = hostrange_case_begin("case", nullptr, nullptr);
        for (int i = 0; i < 4; ++i) marked::call(i == 2);
        hostrange_case_end(number);
    }
}

void long_texts(unsigned) {
    for (const std::size_t size : {1000u, 423u, 424u, 846u, 54144u, 54145u, 100000u}) {
        std::string nodeid = std::to_string(size) + ":";
        nodeid.resize(size, 'x');
        const std::uint64_t number = hostrange_case_begin(nodeid.c_str(), "add", "cpu");
        marked::call(false);
        hostrange_case_end(number);
    }
    const std::uint64_t number = hostrange_case_begin("tests/test_ü.py::test[日本語-\xff]", "a\"dd", "c\npu");
    marked::call(false);
    hostrange_case_end(number);
}

void unbalanced(unsigned) {
    hostrange_case_begin("first", "add", "cpu");
    marked::call(false);
    hostrange_case_begin("second", "add", "cpu");
    hostrange_phase_begin("cold");
    hostrange_phase_begin("warm");
    marked::call(false);
    hostrange_phase_end("other");
    hostrange_case_end(7);
    hostrange_case_end(7);
    hostrange_range_end("never begun");
    marked::call(false);
}

void pauses(unsigned) {
    const int before = hostrange_is_probed();
    marked::call(false);
    const int paused = hostrange_pause(5000), during = hostrange_is_probed();
    for (int i = 0; i < 1000; ++i) marked::call(false);
    const int resumed = hostrange_resume(5000), after = hostrange_is_probed();
    marked::call(false);
    std::printf("%d %d %d %d %d\n", before, paused, during, resumed, after);
}

void threads(unsigned count) {
    std::vector<std::thread> all;
    for (int thread = 0; thread < 8; ++thread) all.emplace_back([count] { ranges(count); });
    for (std::thread& one : all) one.join();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string scenario = argc > 1 ? argv[1] : "";
    const unsigned count = argc > 2 ? std::atoi(argv[2]) : 1;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("ready\n");
    char line[64];
    if (!std::getenv("TARGET_NO_WAIT") && !std::fgets(line, sizeof line, stdin)) return 1;
    const std::pair<const char*, void (*)(unsigned)> scenarios[] = {
        {"ranges", ranges}, {"throwing", throwing},       {"overlapping", overlapping}, {"detached", detached},
        {"cases", cases},   {"plain_cases", plain_cases}, {"long_texts", long_texts},   {"unbalanced", unbalanced},
        {"pauses", pauses}, {"threads", threads}};
    for (const auto& [name, run] : scenarios) {
        if (scenario != name) continue;
        run(count);
        std::printf("done %d\n", hostrange_is_profiled());
        return 0;
    }
    return 2;
}
