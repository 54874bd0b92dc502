// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "cpu/elementwise.h"
#include "cpu/loop_nest.h"
#include "miniops/operators.h"

// Constructors check shapes, the calls check memory; both throw std::invalid_argument.
namespace miniops {

template <>
class Operator<Add, rt::Device::Type::kCpu> : public Add {
public:
    Operator(const Tensor& input, const Tensor& other, const Tensor& out);
    void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const override;

private:
    cpu::BinaryElementwise elements_;
};

template <>
class Operator<Mul, rt::Device::Type::kCpu> : public Mul {
public:
    Operator(const Tensor& input, const Tensor& other, const Tensor& out);
    void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const override;

private:
    cpu::BinaryElementwise elements_;
};

template <>
class Operator<Gemm, rt::Device::Type::kCpu> : public Gemm {
public:
    Operator(const Tensor& input, const Tensor& other, const Tensor& out);
    void operator()(const Tensor& input, const Tensor& other, const Tensor& out) const override;

private:
    cpu::LoopNest<3> batches_;
};

template <>
class Operator<RmsNorm, rt::Device::Type::kCpu> : public RmsNorm {
public:
    Operator(const Tensor& input, const std::optional<Tensor>& weight, const float& epsilon, const Tensor& out);
    void operator()(const Tensor& input, const std::optional<Tensor>& weight, const float& epsilon,
                    const Tensor& out) const override;

private:
    cpu::LoopNest<2> rows_;
};

}  // namespace miniops
