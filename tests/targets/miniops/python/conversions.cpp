// SPDX-License-Identifier: Apache-2.0
#include "conversions.h"

#include <cstdint>
#include <string>

namespace py = pybind11;

namespace miniops::detail {
namespace {

std::string TypeName(py::handle object) {
    return Py_TYPE(object.ptr())->tp_name;
}

}  // namespace

rt::Device DeviceFromPybind11HandleImpl(py::handle object) {
    std::string type;
    rt::Device device;
    try {
        type = object.attr("type").cast<std::string>();
        const py::object index = object.attr("index");
        if (!index.is_none()) device.index = index.cast<int>();
    } catch (const py::error_already_set&) {
        throw py::value_error("a '" + TypeName(object) + "' object is not a device");
    } catch (const py::cast_error&) {
        throw py::value_error("the type or index of a '" + TypeName(object) + "' object is not one of a device");
    }
    if (type == "cpu") {
        device.type = rt::Device::Type::kCpu;
    } else if (type == "cuda") {
        device.type = rt::Device::Type::kNvidia;
    } else {
        throw py::value_error("unknown device type '" + type + "'");
    }
    return device;
}

Tensor TensorFromPybind11HandleImpl(py::handle object) {
    Tensor tensor;
    std::string dtype;
    try {
        tensor.data = reinterpret_cast<void*>(object.attr("data_ptr")().cast<std::uintptr_t>());
        for (const py::handle size : object.attr("shape")) tensor.shape.push_back(size.cast<std::size_t>());
        for (const py::handle stride : object.attr("stride")()) {
            tensor.strides.push_back(stride.cast<std::ptrdiff_t>());
        }
        dtype = py::str(object.attr("dtype")).cast<std::string>();
        tensor.device = DeviceFromPybind11HandleImpl(object.attr("device"));
    } catch (const py::error_already_set&) {
        throw py::value_error("a '" + TypeName(object) + "' object is not a tensor");
    } catch (const py::cast_error&) {
        throw py::value_error("an attribute of a '" + TypeName(object) + "' object is not one of a tensor");
    }
    if (dtype != "float32" && dtype != "torch.float32") {
        throw py::value_error("dtype is " + dtype + ", but only float32 is supported");
    }
    if (tensor.strides.size() != tensor.shape.size()) {
        throw py::value_error("a tensor has as many strides as sizes");
    }
    return tensor;
}

}  // namespace miniops::detail
