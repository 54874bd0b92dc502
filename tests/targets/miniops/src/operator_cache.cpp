// SPDX-License-Identifier: Apache-2.0
#include "miniops/operator_cache.h"

namespace miniops {
namespace detail {
std::atomic<std::uint64_t> cache_generation{0};
}

void ClearCache() noexcept {
    detail::cache_generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace miniops
