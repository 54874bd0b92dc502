// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "cpu/loop_nest.h"
#include "miniops/tensor.h"

namespace miniops::cpu {

// Throws std::invalid_argument if the tensor has elements but no memory.
void RequireData(const Tensor& tensor, const char* operator_name);

// out = function(input, other) element by element, the inputs broadcast to the shape of `out`.
class BinaryElementwise {
public:
    // Throws std::invalid_argument if an input does not broadcast to `out`.
    BinaryElementwise(const char* operator_name, const Tensor& input, const Tensor& other, const Tensor& out);

    template <typename Function>
    void Run(const Tensor& input, const Tensor& other, const Tensor& out, Function function) const {
        for (const Tensor* tensor : {&input, &other, &out}) RequireData(*tensor, operator_name_);
        const auto* input_data = static_cast<const float*>(input.data);
        const auto* other_data = static_cast<const float*>(other.data);
        auto* out_data = static_cast<float*>(out.data);
        rows_.Run([&](const LoopNest<3>::Offsets& offsets) {
            const float* left = input_data + offsets[0];
            const float* right = other_data + offsets[1];
            float* result = out_data + offsets[2];
            for (std::size_t column = 0; column < columns_; ++column) {
                *result = function(*left, *right);
                left += column_strides_[0];
                right += column_strides_[1];
                result += column_strides_[2];
            }
        });
    }

private:
    const char* operator_name_;
    std::size_t columns_ = 1;
    std::array<std::ptrdiff_t, 3> column_strides_{};
    LoopNest<3> rows_;
};

}  // namespace miniops::cpu
