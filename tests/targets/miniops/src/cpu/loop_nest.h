// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace miniops::cpu {

inline constexpr std::size_t kMaximumRank = 8;

// Visits every index of a shape in row-major order and keeps each operand's element offset on the way.
template <std::size_t kOperands>
class LoopNest {
public:
    using Offsets = std::array<std::ptrdiff_t, kOperands>;

    LoopNest(std::vector<std::size_t> shape, std::array<std::vector<std::ptrdiff_t>, kOperands> strides)
        : shape_(std::move(shape)), strides_(std::move(strides)) {
        if (shape_.size() > kMaximumRank) throw std::invalid_argument("more than 8 dimensions");
    }

    template <typename Body>
    void Run(Body body) const {
        for (const std::size_t size : shape_) {
            if (size == 0) return;
        }
        std::array<std::size_t, kMaximumRank> index{};
        Offsets offsets{};
        do {
            body(offsets);
        } while (Advance(index, offsets));
    }

private:
    bool Advance(std::array<std::size_t, kMaximumRank>& index, Offsets& offsets) const {
        for (std::size_t dimension = shape_.size(); dimension-- > 0;) {
            for (std::size_t operand = 0; operand < kOperands; ++operand) {
                offsets[operand] += strides_[operand][dimension];
            }
            if (++index[dimension] < shape_[dimension]) return true;
            for (std::size_t operand = 0; operand < kOperands; ++operand) {
                offsets[operand] -= strides_[operand][dimension] * static_cast<std::ptrdiff_t>(shape_[dimension]);
            }
            index[dimension] = 0;
        }
        return false;
    }

    std::vector<std::size_t> shape_;
    std::array<std::vector<std::ptrdiff_t>, kOperands> strides_;
};

}  // namespace miniops::cpu
