// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "miniops/attributes.h"
#include "miniops/tensor.h"

namespace miniops::detail {

// Everything an operator object depends on: layouts, types, devices and scalars, but no data pointer.
class CacheKey {
public:
    template <typename... Arguments>
    MINIOPS_ALWAYS_INLINE explicit CacheKey(const Config& config, const Arguments&... arguments) {
        words_.reserve(kExpectedWords);
        Append(config.implementation_index);
        (Append(arguments), ...);
    }

    bool operator==(const CacheKey& other) const { return hash_ == other.hash_ && words_ == other.words_; }
    std::size_t hash() const { return hash_; }

private:
    static constexpr std::size_t kExpectedWords = 32;

    void Append(std::uint64_t word) {
        words_.push_back(word);
        hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
        hash_ ^= hash_ >> 29;
    }
    void Append(float scalar) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &scalar, sizeof bits);
        Append(std::uint64_t{bits});
    }
    void Append(const Tensor& tensor) {
        Append(static_cast<std::uint64_t>(tensor.dtype));
        Append(static_cast<std::uint64_t>(tensor.device.type));
        Append(static_cast<std::uint64_t>(tensor.device.index));
        Append(std::uint64_t{tensor.shape.size()});
        for (const std::size_t size : tensor.shape) Append(std::uint64_t{size});
        for (const std::ptrdiff_t stride : tensor.strides) Append(static_cast<std::uint64_t>(stride));
    }
    void Append(const std::optional<Tensor>& tensor) {
        Append(std::uint64_t{tensor.has_value()});
        if (tensor) Append(*tensor);
    }

    std::vector<std::uint64_t> words_;
    std::size_t hash_ = 0xcbf29ce484222325u;
};

struct CacheKeyHash {
    std::size_t operator()(const CacheKey& key) const { return key.hash(); }
};

// Raised by ClearCache(); each thread empties its own caches when it next looks.
extern std::atomic<std::uint64_t> cache_generation;

// One thread's operator objects of one operator.
template <typename Cached>
class OperatorCache {
public:
    MINIOPS_ALWAYS_INLINE const Cached* Find(const CacheKey& key) {
        const std::uint64_t generation = cache_generation.load(std::memory_order_relaxed);
        if (generation != generation_) {
            operators_.clear();
            generation_ = generation;
        }
        const auto found = operators_.find(key);
        return found == operators_.end() ? nullptr : found->second.get();
    }

    const Cached* Insert(CacheKey key, std::unique_ptr<Cached> cached) {
        return operators_.emplace(std::move(key), std::move(cached)).first->second.get();
    }

private:
    std::unordered_map<CacheKey, std::unique_ptr<Cached>, CacheKeyHash> operators_;
    std::uint64_t generation_ = 0;
};

}  // namespace miniops::detail

namespace miniops {

// Forgets every cached operator of every thread, so that the next call of each is cold.
void ClearCache() noexcept;

}  // namespace miniops
