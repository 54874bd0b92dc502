// SPDX-License-Identifier: Apache-2.0
// The in-process profiler of the instrumented twin: clock readings at the places where a probe from outside sits.
// Without MINIOPS_CLOCK_SCOPES nothing of it is compiled.
#pragma once

#ifndef MINIOPS_CLOCK_SCOPES

#define MINIOPS_CLOCK_SCOPE(range, operator_name) static_cast<void>(0)

#else

#define MINIOPS_CLOCK_SCOPE(range, operator_name) \
    const ::miniops::clock_scopes::Scope miniops_clock_scope(::miniops::clock_scopes::Range::range, operator_name)

#include <cstdint>
#include <string>
#include <vector>

namespace miniops::clock_scopes {

enum class Range : std::uint8_t {
    kBindingBody,
    kTensorConversion,
    kDeviceConversion,
    kDispatchCall,
    kOperatorCall,
    kCacheKey,
    kCacheLookup,
    kCacheConstruct,
    kOperatorInvoke,
    kBackendSubmit,
};
inline constexpr std::size_t kRangeCount = 10;

// One execution of a range in this thread. `operator_name` may be null; the call tree takes the first one it meets.
class Scope {
public:
    Scope(Range range, const char* operator_name) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
};

struct Row {
    std::string operator_name;
    std::string backend;
    std::string phase;   // "cold" if the call tree holds cache.construct, else "warm"
    std::string range;   // as in the probe map, e.g. "binding.body"
    std::string metric;  // "inclusive", or "self": without the direct children's inclusive time
    std::uint64_t count = 0;
    double mean_ns = 0;
    double median_ns = 0;
};

// Both may run only while no thread is inside a call. The Python bindings hold the GIL for a whole call, so from
// Python this is so. They throw std::logic_error when already (or not) started.
void Start();
std::vector<Row> Stop();

// Call trees that an exception ended since the last Start(). They are in no row.
std::uint64_t UnwoundCallTrees();

}  // namespace miniops::clock_scopes

#endif
