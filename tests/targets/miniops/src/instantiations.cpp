// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "cpu/operators.h"
#include "miniops/operators.h"
#include "operator_call.h"

namespace miniops {

// Instantiated explicitly, all three layers are exported weak symbols; implicitly, the optimiser makes local clones.
#define MINIOPS_INSTANTIATE(Key, ...)                                                                              \
    template void Operator<Key>::Call(const Handle&, const Config&, __VA_ARGS__);                                  \
    template std::unique_ptr<Operator<Key>> Operator<Key>::MakeWithDevice(rt::Device, const Config&, __VA_ARGS__); \
    template void Operator<Key>::operator()(const Handle&, __VA_ARGS__) const

MINIOPS_INSTANTIATE(Add, const Tensor&, const Tensor&, const Tensor&);
MINIOPS_INSTANTIATE(Mul, const Tensor&, const Tensor&, const Tensor&);
MINIOPS_INSTANTIATE(Gemm, const Tensor&, const Tensor&, const Tensor&);
MINIOPS_INSTANTIATE(RmsNorm, const Tensor&, const std::optional<Tensor>&, const float&, const Tensor&);

#undef MINIOPS_INSTANTIATE

}  // namespace miniops
