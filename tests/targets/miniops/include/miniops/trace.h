// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "miniops/attributes.h"
#include "miniops/operator_cache.h"

namespace miniops::detail {

// Read once, from the environment variable MINIOPS_TRACE.
extern const bool trace_enabled;

void PrintOperatorCall(const char* operator_name, const CacheKey& key);

template <typename Key>
MINIOPS_OUT_OF_LINE void TraceOperatorCall(const CacheKey& key) {
    if (trace_enabled) PrintOperatorCall(Key::kName, key);
}

}  // namespace miniops::detail
