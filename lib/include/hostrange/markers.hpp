// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hostrange/markers.h>

namespace hostrange {

// A range that lasts as long as the object, however the block is left. `name` must outlive the process, as a string
// literal does. Not for coroutines that may be suspended inside of it: see hostrange_range_begin_detached().
class Scope {
public:
    explicit Scope(const char* name) noexcept : name_(name) { hostrange_range_begin(name_); }
    ~Scope() { hostrange_range_end(name_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    const char* name_;
};

}  // namespace hostrange
