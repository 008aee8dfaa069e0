// What the matmul variants share: checks, bindings and flags of the kernels' common interface.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/simt/host/launch.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// A part of K that one dispatch sums: [begin, end).
struct KPart {
  std::int64_t begin, end;
  std::vector<hal::Binding> bindings;  // a, b, bias, residual (absent ones are b again), c, before
  hal::Word flags;                     // 1 = bias, 2 = residual, 4 = trans_a, 8 = trans_b, 16 = before
  hal::Define activation;              // ACTIVATION of the common epilogue
};
// K in parts of `depth`, a barrier between them. All but the last leave their sums in `sums` (see sums_bytes), for the
// output may be the residual's storage; the last finishes C.
std::vector<KPart> k_parts(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims,
                           std::int64_t depth, const hal::Binding& sums);
// The most of K that one dispatch may take, a multiple of `step`, when an invocation runs `fixed` loop iterations and
// `per_step` for every `step` of K (see most_iterations); about equal parts. 0 = not even one step.
std::int64_t k_depth(const hal::DeviceInfo& target, std::int64_t k, std::int64_t step, std::int64_t per_step,
                     std::int64_t fixed);
// Workspace for the sums between parts of `depth`, a multiple of every offset alignment; 0 = one part.
std::int64_t sums_bytes(const kernels::MatmulDims& dims, std::int64_t depth);
// Of `items` that workgroups share out between them, how many one may take when each takes `iterations`; 0 = none.
std::int64_t most_rounds(const hal::DeviceInfo& target, std::int64_t iterations);
// Refusal reason when there are more groups than the driver takes; "" = fine.
std::string too_many_groups(const hal::DeviceInfo& target, std::array<std::int64_t, 3> groups);
// Refusal reason when the call cannot be indexed, or `groups` is more than the driver takes; "" = fine.
std::string matmul_unfit(const kernels::CallView& call, const hal::DeviceInfo& target,
                         std::array<std::int64_t, 3> groups);

// The tile of the kernel matmul_gpu_tile for a product of these sizes, whatever its operands are; and its
// dispatches, with `own` defines, bindings and constants behind the kernel's.
kernels::Fit gpu_tile_fit(const kernels::MatmulDims& dims, const hal::DeviceInfo& target);
void encode_gpu_tile(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims, Launch own = {});

std::array<std::uint32_t, 3> matmul_groups(std::array<std::int64_t, 3> groups);

inline hal::Define define(const char* name, std::int64_t value) { return {name, std::to_string(value)}; }

// One adder per file.
void add_matmul_naive(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_host(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_few_rows(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_gpu_tile(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_tpu_stationary(kernels::Catalog& catalog, const std::string& backend);
void add_matmul_trainium_psum(kernels::Catalog& catalog, const std::string& backend);

}  // namespace meshloom::backends::simt
