// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace hostrange {

// The unwound scopes that came last, each with what the collector must know if it is ended late after all
// (HOSTRANGE_ENDED_LATE).
template <typename Value>
class UnwoundScopes {
public:
    static constexpr std::size_t kKept = 1u << 16;  // 7 MiB

    struct Key {
        std::uint32_t process, thread, site;
        std::uint64_t start_ns;
        auto operator<=>(const Key&) const = default;
    };

    explicit UnwoundScopes(std::size_t kept = kKept) : kept_(kept) {}

    void add(const Key& key, const Value& value) {
        if (!values_.try_emplace(key, value).second) return;
        order_.push_back(key);
        if (order_.size() <= kept_) return;
        values_.erase(order_.front());
        order_.pop_front();
    }

    // Nothing if it is not known, or not any more.
    std::optional<Value> take(const Key& key) {
        const auto found = values_.find(key);
        if (found == values_.end()) return std::nullopt;
        const Value value = found->second;
        values_.erase(found);
        return value;
    }

private:
    const std::size_t kept_;
    std::map<Key, Value> values_;
    std::deque<Key> order_;  // some of them taken already
};

}  // namespace hostrange
