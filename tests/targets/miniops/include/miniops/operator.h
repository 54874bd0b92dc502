// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "miniops/attributes.h"
#include "miniops/runtime.h"
#include "miniops/tensor.h"

namespace miniops {

class OperatorBase {
public:
    virtual ~OperatorBase() = default;
};

// With kAll: what `Key` (Add, Gemm, ...) derives from, and the way in for callers. For one device: specialised by the
// backend, deriving from `Key`. Bodies are in operator_call.h, which only the instantiating file includes.
template <typename Key, rt::Device::Type kDevice = rt::Device::Type::kAll, std::size_t kImplementation = 0>
class Operator : public OperatorBase {
public:
    // Finds the operator object for these layouts in the thread's cache, or makes one, and runs it.
    // Throws std::invalid_argument if shapes do not fit, data is missing or no backend has the operator.
    template <typename... Arguments>
    MINIOPS_OUT_OF_LINE static void Call(const Handle& handle, const Config& config, const Arguments&... arguments);

    template <typename... Arguments>
    MINIOPS_OUT_OF_LINE static std::unique_ptr<Operator> MakeWithDevice(rt::Device device, const Config& config,
                                                                        const Arguments&... arguments);

    template <typename... Arguments>
    MINIOPS_OUT_OF_LINE void operator()(const Handle& handle, const Arguments&... arguments) const;
};

}  // namespace miniops
