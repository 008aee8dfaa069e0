// The variants whose kernels OpenCL and Vulkan share.
#pragma once

#include <string>

#include "kernels/core/catalog.h"

namespace meshloom::backends::simt {

// Called once per backend name ("opencl", "vulkan").
void add_simt_variants(kernels::Catalog& catalog, const std::string& backend);

// One adder per family, each defined beside its variants.
void add_simt_matmul_variants(kernels::Catalog& catalog, const std::string& backend);
void add_simt_flash_attention_variants(kernels::Catalog& catalog, const std::string& backend);
void add_simt_small_op_variants(kernels::Catalog& catalog, const std::string& backend);

}  // namespace meshloom::backends::simt
