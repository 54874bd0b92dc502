// SPDX-License-Identifier: Apache-2.0
#include "miniops/trace.h"

#include <cstdio>
#include <cstdlib>

namespace miniops::detail {

const bool trace_enabled = std::getenv("MINIOPS_TRACE") != nullptr;

void PrintOperatorCall(const char* operator_name, const CacheKey& key) {
    std::fprintf(stderr, "miniops: %s, cache key %016zx\n", operator_name, key.hash());
}

}  // namespace miniops::detail
