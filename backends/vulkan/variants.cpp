// The variants of Vulkan: those it shares with OpenCL, and its own.
#include "backends/simt/variants.h"

#include "backends/simt/kernels/matmul/dequantized.h"
#include "backends/vulkan/backend.h"

namespace meshloom::backends::vulkan {

using simt::Pass;

// Each is defined beside its kernels.
kernels::Variant matmul_cooperative(), matmul_subgroup_dot(), matmul_lane_block(), int8_matmul_cooperative();
kernels::Variant flash_attention_cooperative(Pass);

void add_vulkan_variants(kernels::Catalog& catalog) {
  catalog.add(
      "vulkan",
      simt::variants(
          {{"matmul",
            {.matrix_unit = {matmul_cooperative()},
             .cpu_driver = {matmul_subgroup_dot(), matmul_lane_block()}}},
           {"nf4_matmul", {.matrix_unit = {simt::dequantized<simt::nf4_weights, matmul_cooperative>()}}},
           {"block_quantized_matmul",
            {.matrix_unit = {simt::dequantized<simt::block_quantized_weights, matmul_cooperative>()}}},
           {"grouped_matmul", {.matrix_unit = {matmul_cooperative()}}},
           {"grouped_outer", {.matrix_unit = {matmul_cooperative()}}},
           {"int8_matmul", {.matrix_unit = {int8_matmul_cooperative()}}},
           {"flash_attention", {.matrix_unit = {flash_attention_cooperative(Pass::forward)}}},
           {"flash_attention_grad", {.matrix_unit = {flash_attention_cooperative(Pass::backward)}}}}));
}

}  // namespace meshloom::backends::vulkan
