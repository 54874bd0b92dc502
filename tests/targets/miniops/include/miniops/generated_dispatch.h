// SPDX-License-Identifier: Apache-2.0
// What a generator writes in the library mirrored here: one plain function per operator, between binding and operator.
#pragma once

#include <optional>

#include "miniops/tensor.h"

namespace miniops::generated_dispatch {

void CallAdd(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out);
void CallMul(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out);
void CallGemm(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out);
void CallRmsNorm(const Handle& handle, const Config& config, const Tensor& input, const std::optional<Tensor>& weight,
                 const float& epsilon, const Tensor& out);

}  // namespace miniops::generated_dispatch
