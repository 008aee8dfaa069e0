// What the matmul variants share: checks, bindings and flags of the kernels' common interface.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/launch.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// A kernel's bindings: a, b, bias, residual (absent ones are b again), c.
std::vector<hal::Binding> matmul_bindings(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims);
// 1 = bias, 2 = residual, 4 = trans_a, 8 = trans_b; `more` are a kernel's own.
hal::Word matmul_flags(const kernels::MatmulDims& dims, std::int64_t more = 0);
// ACTIVATION of the common epilogue.
hal::Define matmul_activation(const kernels::MatmulDims& dims);
// Refusal reason when the call cannot be indexed, or `groups` is more than the driver takes; "" = fine.
std::string matmul_unfit(const kernels::CallView& call, const hal::DeviceInfo& target,
                         std::array<std::int64_t, 3> groups);

std::array<std::uint32_t, 3> matmul_groups(std::array<std::int64_t, 3> groups);

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
inline std::int64_t round_up(std::int64_t x, std::int64_t y) { return ceil_div(x, y) * y; }
inline hal::Define define(const char* name, std::int64_t value) { return {name, std::to_string(value)}; }

// One adder per file.
void add_matmul_naive(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_host(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_gpu_tile(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_tpu_stationary(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_trainium_psum(kernels::Catalog& catalog, const std::string& backend);

}  // namespace meshloom::backends::simt
