// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>

#include "cpu/operators.h"
#include "miniops/clock_scopes.h"

namespace miniops {
namespace {

cpu::LoopNest<2> MakeRows(const Tensor& input, const std::optional<Tensor>& weight, const Tensor& out) {
    if (input.shape.empty() || input.shape != out.shape) {
        throw std::invalid_argument("rms_norm: input and out need the same shape, of one dimension or more");
    }
    if (weight && (weight->shape.size() != 1 || weight->shape[0] != input.shape.back())) {
        throw std::invalid_argument("rms_norm: weight must have the size of input's last dimension");
    }
    return cpu::LoopNest<2>({out.shape.begin(), out.shape.end() - 1}, {input.strides, out.strides});
}

}  // namespace

Operator<RmsNorm, rt::Device::Type::kCpu>::Operator(const Tensor& input, const std::optional<Tensor>& weight,
                                                    const float& /*epsilon*/, const Tensor& out)
    : rows_(MakeRows(input, weight, out)) {}

void Operator<RmsNorm, rt::Device::Type::kCpu>::operator()(const Tensor& input, const std::optional<Tensor>& weight,
                                                           const float& epsilon, const Tensor& out) const {
    MINIOPS_CLOCK_SCOPE(kBackendSubmit, kName);
    cpu::RequireData(input, kName);
    cpu::RequireData(out, kName);
    if (weight) cpu::RequireData(*weight, kName);
    const auto columns = static_cast<std::ptrdiff_t>(input.shape.back());
    rows_.Run([&](const cpu::LoopNest<2>::Offsets& offsets) {
        const float* source = static_cast<const float*>(input.data) + offsets[0];
        float* result = static_cast<float*>(out.data) + offsets[1];
        float sum_of_squares = 0;
        for (std::ptrdiff_t column = 0; column < columns; ++column) {
            const float value = source[column * input.strides.back()];
            sum_of_squares += value * value;
        }
        const float scale = 1.0F / std::sqrt(sum_of_squares / static_cast<float>(columns) + epsilon);
        for (std::ptrdiff_t column = 0; column < columns; ++column) {
            const float factor = weight ? static_cast<const float*>(weight->data)[column * weight->strides[0]] : 1.0F;
            result[column * out.strides.back()] = source[column * input.strides.back()] * scale * factor;
        }
    });
}

}  // namespace miniops
