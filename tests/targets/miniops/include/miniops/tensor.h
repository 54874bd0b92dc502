// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "miniops/runtime.h"

namespace miniops {

enum class DataType : std::int8_t { kFloat32 };

// A view: it never owns `data`. Strides count elements.
struct Tensor {
    void* data = nullptr;
    std::vector<std::size_t> shape;
    std::vector<std::ptrdiff_t> strides;
    DataType dtype = DataType::kFloat32;
    rt::Device device;
};

// Row-major, contiguous view of `data`.
Tensor MakeContiguousTensor(float* data, std::vector<std::size_t> shape);

struct Handle {
    std::uintptr_t stream = 0;
};

struct Config {
    std::size_t implementation_index = 0;
};

}  // namespace miniops
