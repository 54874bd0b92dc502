// SPDX-License-Identifier: Apache-2.0
#include "cpu/elementwise.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace miniops::cpu {
namespace {

// The tensor's strides seen as the larger shape: 0 where it is repeated.
std::vector<std::ptrdiff_t> BroadcastStrides(const char* operator_name, const Tensor& tensor,
                                             const std::vector<std::size_t>& shape) {
    if (tensor.shape.size() > shape.size()) {
        throw std::invalid_argument(std::string(operator_name) + ": an input has more dimensions than out");
    }
    const std::size_t missing = shape.size() - tensor.shape.size();
    std::vector<std::ptrdiff_t> strides(shape.size(), 0);
    for (std::size_t dimension = 0; dimension < tensor.shape.size(); ++dimension) {
        const std::size_t size = tensor.shape[dimension];
        if (size == shape[missing + dimension]) {
            strides[missing + dimension] = tensor.strides[dimension];
        } else if (size != 1) {
            throw std::invalid_argument(std::string(operator_name) + ": size " + std::to_string(size) +
                                        " of an input does not broadcast to " +
                                        std::to_string(shape[missing + dimension]));
        }
    }
    return strides;
}

// The innermost dimension is walked by a plain loop, so the nest has the others only.
LoopNest<3> MakeRows(const char* operator_name, const Tensor& input, const Tensor& other, const Tensor& out) {
    auto input_strides = BroadcastStrides(operator_name, input, out.shape);
    auto other_strides = BroadcastStrides(operator_name, other, out.shape);
    return LoopNest<3>({out.shape.begin(), out.shape.end() - (out.shape.empty() ? 0 : 1)},
                       {std::move(input_strides), std::move(other_strides), out.strides});
}

}  // namespace

void RequireData(const Tensor& tensor, const char* operator_name) {
    if (tensor.data != nullptr) return;
    for (const std::size_t size : tensor.shape) {
        if (size == 0) return;
    }
    throw std::invalid_argument(std::string(operator_name) + ": a tensor has no memory");
}

BinaryElementwise::BinaryElementwise(const char* operator_name, const Tensor& input, const Tensor& other,
                                     const Tensor& out)
    : operator_name_(operator_name), rows_(MakeRows(operator_name, input, other, out)) {
    if (out.shape.empty()) return;
    columns_ = out.shape.back();
    column_strides_ = {BroadcastStrides(operator_name, input, out.shape).back(),
                       BroadcastStrides(operator_name, other, out.shape).back(), out.strides.back()};
}

}  // namespace miniops::cpu
