// SPDX-License-Identifier: Apache-2.0
// For tests/bench/markers.py: prints "ready"; for each line "KIND COUNT" runs that many begin-end pairs and prints the
// nanoseconds they took. KIND: hostrange (this project's range markers), phase (its phase markers), sdt (SystemTap's
// sys/sdt.h), nothing.
#include <hostrange/markers.h>
#include <sys/sdt.h>

#include <chrono>
#include <cstdio>
#include <cstring>

int main() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("ready\n");
    char kind[16];
    unsigned long count;
    while (std::scanf("%15s %lu", kind, &count) == 2) {
        const auto is = [&](const char* name) { return std::strcmp(kind, name) == 0; };
        const bool is_hostrange = is("hostrange"), is_phase = is("phase"), is_sdt = is("sdt");
        const auto begin = std::chrono::steady_clock::now();
        if (is_hostrange) {
            for (unsigned long i = 0; i < count; ++i) {
                hostrange_range_begin("pair");
                hostrange_range_end("pair");
            }
        } else if (is_phase) {
            for (unsigned long i = 0; i < count; ++i) {
                hostrange_phase_begin("pair");
                hostrange_phase_end("pair");
            }
        } else if (is_sdt) {
            for (unsigned long i = 0; i < count; ++i) {
                DTRACE_PROBE1(pairs, begin, "pair");
                DTRACE_PROBE1(pairs, end, "pair");
            }
        } else {
            for (unsigned long i = 0; i < count; ++i) asm volatile("" ::: "memory");
        }
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
        std::printf("%lld\n", static_cast<long long>(took.count()));
    }
}
