// The variants of OpenCL: those it shares with Vulkan, and its own.
#include "backends/simt/variants.h"

#include "backends/opencl/backend.h"
#include "backends/simt/kernels/matmul/dequantized.h"

namespace meshloom::backends::opencl {

using simt::Pass;

// Each is defined beside its kernels.
kernels::Variant matmul_ptx_mma(), matmul_ptx_wgmma(), matmul_dpas(), matmul_vec16();
kernels::Variant int8_matmul_ptx_mma(), int8_matmul_dpas();
kernels::Variant flash_attention_ptx_mma(), flash_attention_ptx_mma_grad();
kernels::Variant flash_attention_ptx_wgmma(), flash_attention_ptx_wgmma_grad();
kernels::Variant flash_attention_dpas(), flash_attention_dpas_grad();
kernels::Variant flash_attention_vec16(Pass), flash_attention_vec16_bias_grad();

namespace {

template <const simt::QuantizedWeights& weights>
simt::OwnVariants dequantized() {
  return {.matrix_unit = {simt::dequantized<weights, matmul_ptx_wgmma>(),
                          simt::dequantized<weights, matmul_ptx_mma>(),
                          simt::dequantized<weights, matmul_dpas>()}};
}

}  // namespace

void add_opencl_variants(kernels::Catalog& catalog) {
  catalog.add(
      "opencl",
      simt::variants(
          {{"matmul",
            {.matrix_unit = {matmul_ptx_wgmma(), matmul_ptx_mma(), matmul_dpas()},
             .cpu_driver = {matmul_vec16()}}},
           {"nf4_matmul", dequantized<simt::nf4_weights>()},
           {"block_quantized_matmul", dequantized<simt::block_quantized_weights>()},
           {"grouped_matmul", {.matrix_unit = {matmul_ptx_wgmma(), matmul_ptx_mma(), matmul_dpas()}}},
           {"grouped_outer", {.matrix_unit = {matmul_ptx_wgmma(), matmul_ptx_mma(), matmul_dpas()}}},
           {"int8_matmul", {.matrix_unit = {int8_matmul_ptx_mma(), int8_matmul_dpas()}}},
           {"flash_attention",
            {.matrix_unit = {flash_attention_ptx_mma(), flash_attention_ptx_wgmma(), flash_attention_dpas()},
             .cpu_driver = {flash_attention_vec16(Pass::forward)}}},
           {"flash_attention_grad",
            {.matrix_unit = {flash_attention_ptx_mma_grad(), flash_attention_ptx_wgmma_grad(),
                             flash_attention_dpas_grad()},
             .cpu_driver = {flash_attention_vec16(Pass::backward)}}},
           {"flash_attention_bias_grad", {.cpu_driver = {flash_attention_vec16_bias_grad()}}}}));
}

}  // namespace meshloom::backends::opencl
