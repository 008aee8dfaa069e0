// The processor's peak multiply-add rate as a kernel, which benchmarks run next to what they time.
#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/simd/vector_info.h"

namespace meshloom::backends::cpu {
namespace {

// y[item] = the FLOPs that the work item did, all of them multiply-adds in registers.
void run_multiply_add(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::int64_t rounds = args.constants[0].i;
  for (std::uint32_t i = begin; i < end; ++i) args.at(0)[i] = static_cast<float>(run_fma_loop(rounds));
}

// Likewise for bf16 pairs.
void run_multiply_add_bf16(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const std::int64_t rounds = args.constants[0].i;
  for (std::uint32_t i = begin; i < end; ++i) args.at(0)[i] = static_cast<float>(run_bf16_loop(rounds));
}

}  // namespace

Ops probe_ops() {
  std::vector<Kernel> kernels{{"probe_multiply_add", run_multiply_add}};
  if (supports_bf16_pairs()) kernels.push_back({"probe_multiply_add_bf16", run_multiply_add_bf16});
  return {std::move(kernels), {}};
}

}  // namespace meshloom::backends::cpu
