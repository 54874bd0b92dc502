// SPDX-License-Identifier: Apache-2.0
#include "miniops/runtime.h"

namespace miniops::rt {

std::uintptr_t& CurrentStream() noexcept {
    thread_local std::uintptr_t stream = 0;
    return stream;
}

}  // namespace miniops::rt
