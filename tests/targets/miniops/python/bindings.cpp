// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "conversions.h"
#include "miniops/attributes.h"
#include "miniops/generated_dispatch.h"
#include "miniops/operator_cache.h"
#include "miniops/operators.h"

namespace py = pybind11;

namespace miniops {
namespace {

template <typename Op>
struct Dispatch;

template <>
struct Dispatch<Add> {
    static constexpr auto kCall = &generated_dispatch::CallAdd;
};
template <>
struct Dispatch<Mul> {
    static constexpr auto kCall = &generated_dispatch::CallMul;
};
template <>
struct Dispatch<Gemm> {
    static constexpr auto kCall = &generated_dispatch::CallGemm;
};

void RequireDevice(const rt::Device& device, const Tensor& tensor) {
    if (tensor.device != device) throw std::invalid_argument("a tensor is on another device than the call asks for");
}

}  // namespace

// The two overloads of each operator: device taken from the tensors, and device asked for.
template <typename Op>
void Bind(py::module_& module) {
    module.def(
        Op::kName,
        [](py::handle input, py::handle other, py::handle out, std::uintptr_t stream, std::size_t implementation_index)
            MINIOPS_OUT_OF_LINE {
                MINIOPS_CLOCK_SCOPE(kBindingBody, Op::kName);
                const Tensor input_tensor = detail::TensorFromPybind11Handle(input);
                const Tensor other_tensor = detail::TensorFromPybind11Handle(other);
                const Tensor out_tensor = detail::TensorFromPybind11Handle(out);
                Dispatch<Op>::kCall({stream}, {implementation_index}, input_tensor, other_tensor, out_tensor);
            },
        py::arg("input"), py::arg("other"), py::arg("out"), py::kw_only(), py::arg("stream") = 0,
        py::arg("implementation_index") = 0);
    module.def(
        Op::kName,
        [](py::handle input, py::handle other, py::handle out, py::handle device, std::uintptr_t stream,
           std::size_t implementation_index) MINIOPS_OUT_OF_LINE {
            MINIOPS_CLOCK_SCOPE(kBindingBody, Op::kName);
            const rt::Device call_device = detail::DeviceFromPybind11Handle(device);
            const Tensor input_tensor = detail::TensorFromPybind11Handle(input);
            const Tensor other_tensor = detail::TensorFromPybind11Handle(other);
            const Tensor out_tensor = detail::TensorFromPybind11Handle(out);
            for (const Tensor* tensor : {&input_tensor, &other_tensor, &out_tensor}) {
                RequireDevice(call_device, *tensor);
            }
            Dispatch<Op>::kCall({stream}, {implementation_index}, input_tensor, other_tensor, out_tensor);
        },
        py::arg("input"), py::arg("other"), py::arg("out"), py::kw_only(), py::arg("device"), py::arg("stream") = 0,
        py::arg("implementation_index") = 0);
}

template <>
void Bind<RmsNorm>(py::module_& module) {
    module.def(
        RmsNorm::kName,
        [](py::handle input, py::handle weight, float epsilon, py::handle out, std::uintptr_t stream,
           std::size_t implementation_index) MINIOPS_OUT_OF_LINE {
            MINIOPS_CLOCK_SCOPE(kBindingBody, RmsNorm::kName);
            const Tensor input_tensor = detail::TensorFromPybind11Handle(input);
            const std::optional<Tensor> weight_tensor = detail::OptionalTensorFromPybind11Handle(weight);
            const Tensor out_tensor = detail::TensorFromPybind11Handle(out);
            generated_dispatch::CallRmsNorm({stream}, {implementation_index}, input_tensor, weight_tensor, epsilon,
                                            out_tensor);
        },
        py::arg("input"), py::arg("weight"), py::arg("epsilon"), py::arg("out"), py::kw_only(), py::arg("stream") = 0,
        py::arg("implementation_index") = 0);
    module.def(
        RmsNorm::kName,
        [](py::handle input, py::handle weight, float epsilon, py::handle out, py::handle device, std::uintptr_t stream,
           std::size_t implementation_index) MINIOPS_OUT_OF_LINE {
            MINIOPS_CLOCK_SCOPE(kBindingBody, RmsNorm::kName);
            const rt::Device call_device = detail::DeviceFromPybind11Handle(device);
            const Tensor input_tensor = detail::TensorFromPybind11Handle(input);
            const std::optional<Tensor> weight_tensor = detail::OptionalTensorFromPybind11Handle(weight);
            const Tensor out_tensor = detail::TensorFromPybind11Handle(out);
            RequireDevice(call_device, input_tensor);
            if (weight_tensor) RequireDevice(call_device, *weight_tensor);
            RequireDevice(call_device, out_tensor);
            generated_dispatch::CallRmsNorm({stream}, {implementation_index}, input_tensor, weight_tensor, epsilon,
                                            out_tensor);
        },
        py::arg("input"), py::arg("weight"), py::arg("epsilon"), py::arg("out"), py::kw_only(), py::arg("device"),
        py::arg("stream") = 0, py::arg("implementation_index") = 0);
}

#ifdef MINIOPS_CLOCK_SCOPES
namespace {

void BindClockScopes(py::module_& module) {
    module.def("clock_scopes_start", &clock_scopes::Start, "Forgets all samples and begins to record.");
    module.def(
        "clock_scopes_stop",
        [] {
            py::list rows;
            for (const clock_scopes::Row& row : clock_scopes::Stop()) {
                py::dict entry;
                entry["operator"] = row.operator_name;
                entry["backend"] = row.backend;
                entry["phase"] = row.phase;
                entry["range"] = row.range;
                entry["metric"] = row.metric;
                entry["count"] = row.count;
                entry["unit"] = "ns";
                entry["mean"] = row.mean_ns;
                entry["median"] = row.median_ns;
                rows.append(entry);
            }
            return rows;
        },
        "Ends recording; one dict per operator, phase, range and metric.");
    module.def("clock_scopes_unwound", &clock_scopes::UnwoundCallTrees,
               "Call trees since the last start that an exception ended; they are in no row.");
}

}  // namespace
#endif

}  // namespace miniops

PYBIND11_MODULE(ops, module) {
    miniops::Bind<miniops::Add>(module);
    miniops::Bind<miniops::Mul>(module);
    miniops::Bind<miniops::Gemm>(module);
    miniops::Bind<miniops::RmsNorm>(module);
    module.def("clear_cache", &miniops::ClearCache, "Makes the next call of each operator a cold one.");
#ifdef MINIOPS_CLOCK_SCOPES
    miniops::BindClockScopes(module);
#endif
}
