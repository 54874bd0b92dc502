// SPDX-License-Identifier: Apache-2.0
// The markers, for Python. Nothing is decided here: rules and errors are in _ranges.py and _protocol.py.
#include <hostrange/markers.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_set>

namespace py = pybind11;

namespace {

// The UTF-8 form of a Python string, for as long as this object lives. The bytes of well-formed text belong to the
// string itself and are not copied.
class Utf8 {
public:
    explicit Utf8(const py::str& text) : text_(text) {
        Py_ssize_t size = 0;
        bytes_ = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
        if (!bytes_) {
            // Lone surrogates (file names in another encoding become such): a report is valid UTF-8, so they are
            // spelled out.
            PyErr_Clear();
            text_ =
                py::reinterpret_steal<py::object>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
            if (!text_) throw py::error_already_set();
            bytes_ = PyBytes_AS_STRING(text_.ptr());
            size = PyBytes_GET_SIZE(text_.ptr());
        }
        if (std::strlen(bytes_) != static_cast<std::size_t>(size)) {
            throw py::value_error("a marker's text cannot have a NUL character in it");
        }
    }
    const char* c_str() const { return bytes_; }

private:
    py::object text_;
    const char* bytes_;
};

// A range's name at an address of its own for the life of the process: a listener may read it, and knows it by its
// address, long after the range has ended.
struct Name {
    const std::string* text;
};

Name intern(const py::str& text) {
    // Never destroyed: threads may end ranges while the interpreter shuts down. Guarded by the interpreter's lock.
    static auto& names = *new std::unordered_set<std::string>;
    return {&*names.emplace(Utf8(text).c_str()).first};
}

// A marker that takes one text, as a function of Python's.
auto with_text(void (*marker)(const char*)) {
    return [marker](const py::str& text) { marker(Utf8(text).c_str()); };
}

}  // namespace

// The markers' functions, not their macros, which would look at the text only if somebody listens: a text that no
// marker can carry is an error in any case.
PYBIND11_MODULE(_markers, module) {
    // Markers evaluate their arguments only if somebody listens. Texts that they cannot carry are errors in any case,
    // so they are converted before.
    module.doc() = "USDT markers by which a process tells hostrange-bpf what it is doing. Use the package hostrange.";

    py::class_<Name>(module, "Name").def_property_readonly("text", [](const Name& name) { return *name.text; });
    module.def("intern", &intern, py::arg("text"));

    module.def("is_profiled", [] { return hostrange_is_profiled() != 0; });
    module.def("is_probed", [] { return hostrange_is_probed() != 0; });

    module.def("session_begin", with_text(&hostrange_session_begin), py::arg("name"));
    module.def("session_end", &hostrange_session_end);
    module.def(
        "case_begin",
        [](const py::str& nodeid, const py::str& operator_name, const py::str& backend) {
            return (hostrange_case_begin)(Utf8(nodeid).c_str(), Utf8(operator_name).c_str(), Utf8(backend).c_str());
        },
        py::arg("nodeid"), py::arg("operator"), py::arg("backend"));
    module.def("case_end", &hostrange_case_end, py::arg("number"));
    module.def("phase_begin", with_text(&hostrange_phase_begin), py::arg("name"));
    module.def("phase_end", with_text(&hostrange_phase_end), py::arg("name"));

    module.def(
        "range_begin", [](const Name& name) { hostrange_range_begin(name.text->c_str()); }, py::arg("name"));
    module.def(
        "range_end", [](const Name& name) { hostrange_range_end(name.text->c_str()); }, py::arg("name"));
    module.def(
        "range_begin_detached",
        [](const Name& name, std::uint64_t token) { hostrange_range_begin_detached(name.text->c_str(), token); },
        py::arg("name"), py::arg("token"));
    module.def(
        "range_end_detached",
        [](const Name& name, std::uint64_t token) { hostrange_range_end_detached(name.text->c_str(), token); },
        py::arg("name"), py::arg("token"));

    module.def(
        "measurement",
        [](const py::str& name, std::uint64_t count, double mean_ns, double median_ns) {
            (hostrange_measurement)(Utf8(name).c_str(), count, mean_ns, median_ns);
        },
        py::arg("name"), py::arg("count"), py::arg("mean_ns"), py::arg("median_ns"));

    module.def(
        "pause", [](unsigned timeout_ms) { return hostrange_pause(timeout_ms) == 0; }, py::arg("timeout_ms"),
        py::call_guard<py::gil_scoped_release>());
    module.def(
        "resume", [](unsigned timeout_ms) { return hostrange_resume(timeout_ms) == 0; }, py::arg("timeout_ms"),
        py::call_guard<py::gil_scoped_release>());
}
