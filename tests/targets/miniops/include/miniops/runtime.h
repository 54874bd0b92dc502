// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace miniops::rt {

struct Device {
    // The values show in symbols: 10 marks the class that dispatches, any other one backend.
    enum class Type : std::int8_t { kCpu = 0, kNvidia = 1, kAll = 10 };

    Type type = Type::kCpu;
    int index = 0;
};

inline bool operator==(const Device& left, const Device& right) {
    return left.type == right.type && left.index == right.index;
}
inline bool operator!=(const Device& left, const Device& right) {
    return !(left == right);
}

// This thread's. The CPU backend has no streams; the number is kept for the caller.
std::uintptr_t& CurrentStream() noexcept;

class StreamGuard {
public:
    explicit StreamGuard(std::uintptr_t stream) noexcept : current_(CurrentStream()), previous_(current_) {
        current_ = stream;
    }
    ~StreamGuard() { current_ = previous_; }
    StreamGuard(const StreamGuard&) = delete;
    StreamGuard& operator=(const StreamGuard&) = delete;

private:
    std::uintptr_t& current_;
    std::uintptr_t previous_;
};

}  // namespace miniops::rt
