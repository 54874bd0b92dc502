// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "miniops/attributes.h"
#include "miniops/clock_scopes.h"
#include "miniops/tensor.h"

namespace miniops::detail {

// Reads `type` and `index` of a Python device. Throws pybind11::value_error if it is none.
MINIOPS_OUT_OF_LINE rt::Device DeviceFromPybind11HandleImpl(pybind11::handle object);

// Reads `data_ptr()`, `shape`, `stride()`, `dtype` and `device` as a torch.Tensor has them; the view does not own.
// Throws pybind11::value_error if the object is no float32 tensor.
MINIOPS_OUT_OF_LINE Tensor TensorFromPybind11HandleImpl(pybind11::handle object);

inline rt::Device DeviceFromPybind11Handle(pybind11::handle object) {
    MINIOPS_CLOCK_SCOPE(kDeviceConversion, nullptr);
    return DeviceFromPybind11HandleImpl(object);
}

inline Tensor TensorFromPybind11Handle(pybind11::handle object) {
    MINIOPS_CLOCK_SCOPE(kTensorConversion, nullptr);
    return TensorFromPybind11HandleImpl(object);
}

inline std::optional<Tensor> OptionalTensorFromPybind11Handle(pybind11::handle object) {
    if (object.is_none()) return std::nullopt;
    return TensorFromPybind11Handle(object);
}

}  // namespace miniops::detail
