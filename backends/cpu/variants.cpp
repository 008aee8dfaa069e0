#include "backends/cpu/backend.h"
#include "backends/cpu/kernels/entries.h"

namespace meshloom::backends::cpu {

void add_cpu_variants(kernels::Catalog& catalog) {
  add_matmul_variants(catalog);
  add_flash_attention_variants(catalog);
  add_elementwise_variants(catalog);
  add_rms_norm_variants(catalog);
  add_layer_norm_variants(catalog);
  add_rope_variants(catalog);
  add_embedding_variants(catalog);
  add_cross_entropy_variants(catalog);
  add_reduce_sum_variants(catalog);
  add_layout_variants(catalog);
  add_iota_variants(catalog);
  add_adamw_variants(catalog);
  add_cast_variants(catalog);
  add_softmax_variants(catalog);
  add_top_k_variants(catalog);
  add_moe_routing_variants(catalog);
  add_concat_variants(catalog);
  add_grouped_matmul_variants(catalog);
  add_dropout_variants(catalog);
  add_nf4_matmul_variants(catalog);
  add_int8_matmul_variants(catalog);
  add_quantize_dequantize_variants(catalog);
  add_mask_bits_variants(catalog);
  add_relative_bias_variants(catalog);
}

}  // namespace meshloom::backends::cpu
