// What the variants of the small ops share: checks, workgroup sizes, grids and one-line dispatches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/math.h"
#include "kernels/core/catalog.h"
#include "kernels/core/variant.h"

namespace meshloom::backends::simt {
using hal::ceil_div;
using hal::round_up;

// Refusal reason when a tensor of the call is not f32 (ids: i32) or too large for 32-bit indices; "" = fine.
std::string unfit(const kernels::CallView& call);
// The same for tensors of any dtype.
std::string indexable(const kernels::CallView& call);
kernels::Fit fit_indexable(const kernels::CallView& call, const hal::DeviceInfo&);

// Refusal reason when a tensor is neither of these nor of 16-bit floats, or the device cannot read and write those as they
// lie in memory (halves.inc); "" = fine.
std::string no_halves(const kernels::CallView& call, const hal::DeviceInfo& target);
// 0 is f32, 1 bf16, 2 f16: how the kernels count dtypes.
std::int64_t dtype_code(hal::DType dtype);

// Mesa's driver for the host's cores, behind Vulkan (lavapipe) or OpenCL (rusticl).
bool on_llvmpipe(const hal::DeviceInfo& target);

// Most loop iterations one invocation may run in all, over every loop: llvmpipe ends loops silently after
// 65,535. A very large number on other drivers.
std::int64_t most_iterations(const hal::DeviceInfo& target);
// Refusal reason when `iterations` are too many; "" = fine.
std::string too_long(const hal::DeviceInfo& target, double iterations);

// What the device has for one workgroup, as the profile it runs as allows: bytes of memory, invocations.
std::int64_t workgroup_bytes(const hal::DeviceInfo& target);
std::int64_t most_invocations(const hal::DeviceInfo& target);

// Invocations per workgroup of elementwise kernels, and of kernels that fold one row per workgroup. CPU
// drivers want one SIMD vector, GPUs several.
std::uint32_t elementwise_width(const hal::DeviceInfo& target);
std::uint32_t row_width(const hal::DeviceInfo& target);

// Workgroups over `count` items of `width` each, folded into two dimensions that every driver takes.
std::array<std::uint32_t, 3> grid(std::int64_t count, std::uint32_t width);

// As `binding`, but read or written.
hal::Binding reading(hal::Binding binding);
hal::Binding writing(hal::Binding binding);
// Where the next piece of a workspace may begin: a multiple of every driver's offset alignment (NVIDIA's
// OpenCL and rusticl ask for 512).
constexpr std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, 4096); }
// Bytes [offset, offset + bytes) of a binding.
hal::Binding part(hal::Binding binding, std::int64_t offset, std::int64_t bytes);

// With the rest of the last word, for 16-bit floats two to a word: storage is cut in words.
hal::Binding whole_words(hal::Binding binding);

struct Launch {
  std::string kernel;
  std::vector<hal::Define> defines;
  std::uint32_t width = 1;  // workgroup (width, 1, 1)
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::vector<hal::Binding> bindings;
  std::vector<hal::Word> constants;
  std::uint32_t subgroup = 0;  // invocations a subgroup must have; 0 = as the driver likes
  std::int64_t each = 0;       // items of a FOR_EACH kernel: sets width, groups and PER
};
void launch(const kernels::EncodeArgs& args, const Launch& launch);
// A FOR_EACH kernel whose items have loops of their own: one item per invocation.
void launch_rows(const kernels::EncodeArgs& args, std::int64_t items, Launch launch);

// Adds a variant for any profile kind, rank 1; with `low_precision`, `fit` judges 16-bit floats itself.
void add_small(kernels::Catalog& catalog, const std::string& backend, const std::string& op,
               const std::string& about,
               kernels::Fit (*fit)(const kernels::CallView&, const hal::DeviceInfo&),
               void (*encode)(const kernels::EncodeArgs&), bool low_precision = false);

// What the kernels of int8_matmul bind: a, its scales, b, its scales, a bias or something in its place, c.
std::vector<hal::Binding> int8_matmul_bindings(const kernels::EncodeArgs& args);

// The families of small ops, each in its own file.
void add_elementwise(kernels::Catalog& catalog, const std::string& backend);
void add_norms(kernels::Catalog& catalog, const std::string& backend);
void add_reductions(kernels::Catalog& catalog, const std::string& backend);
void add_embeddings(kernels::Catalog& catalog, const std::string& backend);
void add_cross_entropy_ops(kernels::Catalog& catalog, const std::string& backend);
void add_rope_op(kernels::Catalog& catalog, const std::string& backend);
void add_layouts(kernels::Catalog& catalog, const std::string& backend);
void add_join_features_ops(kernels::Catalog& catalog, const std::string& backend);
void add_casts(kernels::Catalog& catalog, const std::string& backend);
void add_optimizers(kernels::Catalog& catalog, const std::string& backend);
void add_softmax_ops(kernels::Catalog& catalog, const std::string& backend);
void add_top_k_ops(kernels::Catalog& catalog, const std::string& backend);
void add_row_groups_ops(kernels::Catalog& catalog, const std::string& backend);
void add_grouped_matmul_ops(kernels::Catalog& catalog, const std::string& backend);
void add_dropout_op(kernels::Catalog& catalog, const std::string& backend);
void add_nf4_ops(kernels::Catalog& catalog, const std::string& backend);
void add_int8_ops(kernels::Catalog& catalog, const std::string& backend);
void add_rounding_ops(kernels::Catalog& catalog, const std::string& backend);
void add_mask_bits_op(kernels::Catalog& catalog, const std::string& backend);
void add_relative_bias_ops(kernels::Catalog& catalog, const std::string& backend);

// Rows summed by one invocation of column_sum in its first pass, and the workspace its sums take.
std::int64_t column_chunks(std::int64_t rows);
// Sums (rows, n) by column in two passes; `first` is column_sum's first pass without defines' KIND's bindings
// filled in: its last binding is written. `workspace` holds column_chunks(rows) x n floats.
void column_sum(const kernels::EncodeArgs& args, int kind, std::vector<hal::Binding> inputs,
                std::int64_t rows, std::int64_t n, hal::Binding workspace, hal::Binding out);

}  // namespace meshloom::backends::simt
