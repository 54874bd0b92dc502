// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace hard_cases {

// Memory for a stack of a thread, a fiber or a signal handler.
struct Stack {
    char* lowest;
    std::size_t size_bytes;

    bool contains(const void* address) const { return address >= lowest && address < lowest + size_bytes; }
};

enum class Guards {
    kBetween,     // a page without access between neighbours: each stack is a memory area of its own
    kOnlyAround,  // none between neighbours: all stacks are one memory area
};

// `count` stacks in ascending address order, with a page without access below the first and above the last. They are
// never unmapped.
inline std::vector<Stack> map_stacks(int count, Guards guards) {
    constexpr std::size_t kPageBytes = 4096, kStackBytes = 64 * kPageBytes;
    const std::size_t gap_bytes = guards == Guards::kBetween ? kPageBytes : 0;
    const std::size_t total_bytes = 2 * kPageBytes + count * kStackBytes + (count - 1) * gap_bytes;
    void* mapped = mmap(nullptr, total_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        std::perror("mmap of stacks");
        std::exit(1);
    }
    std::vector<Stack> stacks;
    char* lowest = static_cast<char*>(mapped) + kPageBytes;
    for (int i = 0; i < count; i++) {
        if (mprotect(lowest, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
            std::perror("mprotect of a stack");
            std::exit(1);
        }
        stacks.push_back({lowest, kStackBytes});
        lowest += kStackBytes + gap_bytes;
    }
    return stacks;
}

}  // namespace hard_cases
