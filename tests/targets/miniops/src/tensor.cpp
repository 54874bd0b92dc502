// SPDX-License-Identifier: Apache-2.0
#include "miniops/tensor.h"

#include <utility>

namespace miniops {

Tensor MakeContiguousTensor(float* data, std::vector<std::size_t> shape) {
    Tensor tensor;
    tensor.data = data;
    tensor.strides.resize(shape.size());
    std::ptrdiff_t stride = 1;
    for (std::size_t dimension = shape.size(); dimension-- > 0;) {
        tensor.strides[dimension] = stride;
        stride *= static_cast<std::ptrdiff_t>(shape[dimension]);
    }
    tensor.shape = std::move(shape);
    return tensor;
}

}  // namespace miniops
