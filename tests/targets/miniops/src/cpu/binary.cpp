// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "cpu/operators.h"
#include "miniops/clock_scopes.h"

namespace miniops {

Operator<Add, rt::Device::Type::kCpu>::Operator(const Tensor& input, const Tensor& other, const Tensor& out)
    : elements_(kName, input, other, out) {}

void Operator<Add, rt::Device::Type::kCpu>::operator()(const Tensor& input, const Tensor& other,
                                                       const Tensor& out) const {
    MINIOPS_CLOCK_SCOPE(kBackendSubmit, kName);
    elements_.Run(input, other, out, std::plus<float>());
}

Operator<Mul, rt::Device::Type::kCpu>::Operator(const Tensor& input, const Tensor& other, const Tensor& out)
    : elements_(kName, input, other, out) {}

void Operator<Mul, rt::Device::Type::kCpu>::operator()(const Tensor& input, const Tensor& other,
                                                       const Tensor& out) const {
    MINIOPS_CLOCK_SCOPE(kBackendSubmit, kName);
    elements_.Run(input, other, out, std::multiplies<float>());
}

}  // namespace miniops
