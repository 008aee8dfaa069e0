#include "backends/cpu/kernel_table.h"

#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {

KernelTable::KernelTable() {
  for (const auto family : {matmul_kernels,         flash_attention_kernels,
                            elementwise_kernels,    rms_norm_kernels,
                            layer_norm_kernels,     rope_kernels,
                            embedding_kernels,      cross_entropy_kernels,
                            reduce_sum_kernels,     layout_kernels,
                            iota_kernels,           adamw_kernels,
                            softmax_kernels,        top_k_kernels,
                            moe_routing_kernels,    concat_kernels,
                            grouped_matmul_kernels, convert_kernels,
                            dropout_kernels,        int8_kernels,
                            nf4_matmul_kernels,     rounding_kernels,
                            mask_bits_kernels,      relative_bias_kernels,
                            probe_kernels})
    for (const Kernel& kernel : family())
      if (!kernels_.emplace(kernel.name, kernel.run).second)
        throw Error("cpu, kernel table", "kernel names must be unique", "'" + kernel.name + "' twice");
}

KernelFunction KernelTable::find(std::string_view name) const {
  const auto found = kernels_.find(name);
  if (found == kernels_.end())
    throw Error("cpu, loading kernel '" + std::string(name) + "'", "must be one of the backend's kernels");
  return found->second;
}

}  // namespace meshloom::backends::cpu
