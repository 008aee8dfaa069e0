// The kernels of the CPU backend by family, and the variants that use them: one pair of functions per family,
// each defined beside its kernels. kernel_table.cpp and variants.cpp join them.
#pragma once

#include <vector>

#include "backends/cpu/device/kernel.h"
#include "kernels/core/catalog.h"

namespace meshloom::backends::cpu {

std::vector<Kernel> matmul_kernels();
void add_matmul_variants(kernels::Catalog& catalog);
std::vector<Kernel> flash_attention_kernels();
void add_flash_attention_variants(kernels::Catalog& catalog);
std::vector<Kernel> elementwise_kernels();
void add_elementwise_variants(kernels::Catalog& catalog);
std::vector<Kernel> rms_norm_kernels();
void add_rms_norm_variants(kernels::Catalog& catalog);
std::vector<Kernel> layer_norm_kernels();
void add_layer_norm_variants(kernels::Catalog& catalog);
std::vector<Kernel> rope_kernels();
std::vector<Kernel> concat_kernels();
void add_join_features_variants(kernels::Catalog& catalog);
void add_rope_variants(kernels::Catalog& catalog);
std::vector<Kernel> embedding_kernels();
void add_embedding_variants(kernels::Catalog& catalog);
std::vector<Kernel> cross_entropy_kernels();
void add_cross_entropy_variants(kernels::Catalog& catalog);
std::vector<Kernel> reduce_sum_kernels();
void add_reduce_sum_variants(kernels::Catalog& catalog);
std::vector<Kernel> layout_kernels();
void add_layout_variants(kernels::Catalog& catalog);
std::vector<Kernel> iota_kernels();
void add_iota_variants(kernels::Catalog& catalog);
std::vector<Kernel> adamw_kernels();
void add_adamw_variants(kernels::Catalog& catalog);
std::vector<Kernel> convert_kernels();
void add_convert_variants(kernels::Catalog& catalog);
std::vector<Kernel> softmax_kernels();
void add_softmax_variants(kernels::Catalog& catalog);
std::vector<Kernel> top_k_kernels();
void add_top_k_variants(kernels::Catalog& catalog);
std::vector<Kernel> moe_routing_kernels();
void add_row_groups_variants(kernels::Catalog& catalog);
std::vector<Kernel> grouped_matmul_kernels();
void add_grouped_matmul_variants(kernels::Catalog& catalog);
std::vector<Kernel> dropout_kernels();
void add_dropout_variants(kernels::Catalog& catalog);
std::vector<Kernel> nf4_matmul_kernels();
void add_nf4_matmul_variants(kernels::Catalog& catalog);
std::vector<Kernel> int8_kernels();
void add_int8_variants(kernels::Catalog& catalog);
std::vector<Kernel> rounding_kernels();
void add_rounding_variants(kernels::Catalog& catalog);
std::vector<Kernel> mask_bits_kernels();
void add_mask_bits_variants(kernels::Catalog& catalog);
std::vector<Kernel> relative_bias_kernels();
void add_relative_bias_variants(kernels::Catalog& catalog);
std::vector<Kernel> probe_kernels();

}  // namespace meshloom::backends::cpu
