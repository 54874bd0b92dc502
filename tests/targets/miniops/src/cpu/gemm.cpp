// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/operators.h"
#include "miniops/clock_scopes.h"

namespace miniops {
namespace {

cpu::LoopNest<3> MakeBatches(const Tensor& input, const Tensor& other, const Tensor& out) {
    const std::size_t rank = out.shape.size();
    if (rank < 2 || input.shape.size() != rank || other.shape.size() != rank) {
        throw std::invalid_argument("gemm: all three tensors need the same number of dimensions, two or more");
    }
    const std::size_t batch_rank = rank - 2;
    const bool batches_fit = std::equal(input.shape.begin(), input.shape.end() - 2, out.shape.begin()) &&
                             std::equal(other.shape.begin(), other.shape.end() - 2, out.shape.begin());
    const bool matrices_fit = input.shape[batch_rank] == out.shape[batch_rank] &&
                              input.shape[batch_rank + 1] == other.shape[batch_rank] &&
                              other.shape[batch_rank + 1] == out.shape[batch_rank + 1];
    if (!batches_fit || !matrices_fit) {
        throw std::invalid_argument("gemm: shapes must be (..., m, k), (..., k, n) and (..., m, n)");
    }
    return cpu::LoopNest<3>({out.shape.begin(), out.shape.end() - 2}, {input.strides, other.strides, out.strides});
}

struct Matrix {
    explicit Matrix(const Tensor& tensor)
        : rows(tensor.shape[tensor.shape.size() - 2]),
          columns(tensor.shape.back()),
          row_stride(tensor.strides[tensor.strides.size() - 2]),
          column_stride(tensor.strides.back()) {}

    std::size_t rows;
    std::size_t columns;
    std::ptrdiff_t row_stride;
    std::ptrdiff_t column_stride;
};

}  // namespace

Operator<Gemm, rt::Device::Type::kCpu>::Operator(const Tensor& input, const Tensor& other, const Tensor& out)
    : batches_(MakeBatches(input, other, out)) {}

void Operator<Gemm, rt::Device::Type::kCpu>::operator()(const Tensor& input, const Tensor& other,
                                                        const Tensor& out) const {
    MINIOPS_CLOCK_SCOPE(kBackendSubmit, kName);
    for (const Tensor* tensor : {&input, &other, &out}) cpu::RequireData(*tensor, kName);
    const Matrix input_matrix(input);
    const Matrix other_matrix(other);
    const Matrix out_matrix(out);
    batches_.Run([&](const cpu::LoopNest<3>::Offsets& offsets) {
        for (std::size_t row = 0; row < out_matrix.rows; ++row) {
            for (std::size_t column = 0; column < out_matrix.columns; ++column) {
                const float* left = static_cast<const float*>(input.data) + offsets[0] +
                                    static_cast<std::ptrdiff_t>(row) * input_matrix.row_stride;
                const float* right = static_cast<const float*>(other.data) + offsets[1] +
                                     static_cast<std::ptrdiff_t>(column) * other_matrix.column_stride;
                float sum = 0;
                for (std::size_t inner = 0; inner < input_matrix.columns; ++inner) {
                    sum += *left * *right;
                    left += input_matrix.column_stride;
                    right += other_matrix.row_stride;
                }
                static_cast<float*>(out.data)[offsets[2] + static_cast<std::ptrdiff_t>(row) * out_matrix.row_stride +
                                              static_cast<std::ptrdiff_t>(column) * out_matrix.column_stride] = sum;
            }
        }
    });
}

}  // namespace miniops
