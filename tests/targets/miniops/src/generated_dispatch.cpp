// SPDX-License-Identifier: Apache-2.0
#include "miniops/generated_dispatch.h"

#include "miniops/clock_scopes.h"
#include "miniops/operators.h"

// Call's body is not seen here, and all arguments go on as they came: optimised, each function is one tail call.
namespace miniops::generated_dispatch {

void CallAdd(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out) {
    MINIOPS_CLOCK_SCOPE(kDispatchCall, Add::kName);
    Operator<Add>::Call(handle, config, input, other, out);
}

void CallMul(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out) {
    MINIOPS_CLOCK_SCOPE(kDispatchCall, Mul::kName);
    Operator<Mul>::Call(handle, config, input, other, out);
}

void CallGemm(const Handle& handle, const Config& config, const Tensor& input, const Tensor& other, const Tensor& out) {
    MINIOPS_CLOCK_SCOPE(kDispatchCall, Gemm::kName);
    Operator<Gemm>::Call(handle, config, input, other, out);
}

void CallRmsNorm(const Handle& handle, const Config& config, const Tensor& input, const std::optional<Tensor>& weight,
                 const float& epsilon, const Tensor& out) {
    MINIOPS_CLOCK_SCOPE(kDispatchCall, RmsNorm::kName);
    Operator<RmsNorm>::Call(handle, config, input, weight, epsilon, out);
}

}  // namespace miniops::generated_dispatch
