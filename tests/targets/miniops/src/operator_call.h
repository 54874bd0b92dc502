// SPDX-License-Identifier: Apache-2.0
// The bodies of Operator<Key>. Include it where they are instantiated, after the backends' specialisations.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "miniops/attributes.h"
#include "miniops/clock_scopes.h"
#include "miniops/operator.h"
#include "miniops/operator_cache.h"
#include "miniops/trace.h"

namespace miniops {
namespace detail {

template <typename Key, typename... Arguments>
MINIOPS_ALWAYS_INLINE CacheKey BuildCacheKey(const Config& config, const Arguments&... arguments) {
    MINIOPS_CLOCK_SCOPE(kCacheKey, Key::kName);
    return CacheKey(config, arguments...);
}

template <typename Key>
MINIOPS_ALWAYS_INLINE const Operator<Key>* FindOperator(OperatorCache<Operator<Key>>& cache, const CacheKey& key) {
    MINIOPS_CLOCK_SCOPE(kCacheLookup, Key::kName);
    return cache.Find(key);
}

template <typename... Rest>
rt::Device DeviceOfFirst(const Tensor& first, const Rest&...) {
    return first.device;
}

}  // namespace detail

template <typename Key, rt::Device::Type kDevice, std::size_t kImplementation>
template <typename... Arguments>
void Operator<Key, kDevice, kImplementation>::Call(const Handle& handle, const Config& config,
                                                   const Arguments&... arguments) {
    MINIOPS_CLOCK_SCOPE(kOperatorCall, Key::kName);
    thread_local detail::OperatorCache<Operator> cache;

    detail::CacheKey key = detail::BuildCacheKey<Key>(config, arguments...);
    detail::TraceOperatorCall<Key>(key);
    const Operator* found = detail::FindOperator<Key>(cache, key);
    if (found == nullptr) {
        auto made = MakeWithDevice(detail::DeviceOfFirst(arguments...), config, arguments...);
        found = cache.Insert(std::move(key), std::move(made));
    }
    (*found)(handle, arguments...);
}

template <typename Key, rt::Device::Type kDevice, std::size_t kImplementation>
template <typename... Arguments>
std::unique_ptr<Operator<Key, kDevice, kImplementation>> Operator<Key, kDevice, kImplementation>::MakeWithDevice(
    rt::Device device, const Config& config, const Arguments&... arguments) {
    MINIOPS_CLOCK_SCOPE(kCacheConstruct, Key::kName);
    if (device.type == rt::Device::Type::kCpu && config.implementation_index == 0) {
        return std::make_unique<Operator<Key, rt::Device::Type::kCpu, 0>>(arguments...);
    }
    throw std::invalid_argument(std::string(Key::kName) + ": no implementation " +
                                std::to_string(config.implementation_index) + " for device type " +
                                std::to_string(static_cast<int>(device.type)));
}

template <typename Key, rt::Device::Type kDevice, std::size_t kImplementation>
template <typename... Arguments>
void Operator<Key, kDevice, kImplementation>::operator()(const Handle& handle, const Arguments&... arguments) const {
    MINIOPS_CLOCK_SCOPE(kOperatorInvoke, Key::kName);
    const rt::StreamGuard stream(handle.stream);
    static_cast<const Key&> (*this)(arguments...);
}

}  // namespace miniops
