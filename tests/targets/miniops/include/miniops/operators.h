// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "miniops/operator.h"
#include "miniops/tensor.h"

namespace miniops {

// out = input + other; both inputs broadcast to the shape of `out`.
class Add : public Operator<Add> {
public:
    static constexpr const char* kName = "add";
    virtual void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const = 0;
};

// out = input * other; both inputs broadcast to the shape of `out`.
class Mul : public Operator<Mul> {
public:
    static constexpr const char* kName = "mul";
    virtual void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const = 0;
};

// out[..., m, n] = input[..., m, k] @ other[..., k, n]; the leading (batch) sizes are the same in all three.
class Gemm : public Operator<Gemm> {
public:
    static constexpr const char* kName = "gemm";
    virtual void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const = 0;
};

// out[..., d] = input[..., d] / sqrt(mean over d of input^2 + epsilon) * weight[d]; no weight means ones.
class RmsNorm : public Operator<RmsNorm> {
public:
    static constexpr const char* kName = "rms_norm";
    virtual void operator()(const Tensor& input, const std::optional<Tensor>& weight, const float& epsilon,
                            const Tensor& out) const = 0;
};

}  // namespace miniops
