// What the variants share: refusals, workgroup sizes, grids and the launch of a kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hal/binding.h"
#include "hal/math.h"
#include "kernels/core/catalog.h"
#include "kernels/core/variant.h"

namespace meshloom::backends::simt {
using hal::ceil_div;
using hal::round_up;

// Each unsupported_* function returns the reason why a call is refused, or "".

// Tensors that are neither f32 nor i32, or that need more than 32-bit indices.
std::string unsupported_dtype(const kernels::CallView& call);
// Tensors of any dtype that need more than 32-bit indices.
std::string unsupported_size(const kernels::CallView& call);
// 16-bit floats, where the device cannot read and write them as they are stored (halves.inc), and unsupported_size.
std::string unsupported_f16(const kernels::CallView& call, const hal::DeviceInfo& target);
// An invocation that runs more than max_iterations loop iterations.
std::string unsupported_iterations(const hal::DeviceInfo& target, double iterations);

// Fits unless unsupported_size.
kernels::Fit fit_any_dtype(const kernels::CallView& call, const hal::DeviceInfo&);

// The dtype as kernels know it: 0 is f32, 1 bf16, 2 f16.
std::int64_t dtype_code(hal::DType dtype);

// The number of loop iterations that one invocation may run in all, over all loops (Quirks::max_loop_iterations). A
// very large number on most drivers.
std::int64_t max_iterations(const hal::DeviceInfo& target);

// Bytes of memory and invocations that one workgroup may have, by the device and by the profile it runs as.
std::int64_t workgroup_bytes(const hal::DeviceInfo& target);
std::int64_t max_invocations(const hal::DeviceInfo& target);
// A GPU with subgroups of fewer than 32 invocations, as Intel's, which has fewer registers for each.
bool has_narrow_subgroups(const hal::DeviceInfo& target);
// Mesa's Vulkan driver for Intel's GPUs (ANV), whose compiler gives a variable that a loop carries its register for all of the loop.
// Sums that go through several products in an iteration are then twice in registers: in the variable, and between the products.
bool needs_rolled_sums(const hal::DeviceInfo& target);
// As the parameter "rolled" of a choice says, which tests on CPU drivers have, or as the target needs it.
bool has_rolled_sums(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target);

// Invocations per workgroup of elementwise kernels, and of kernels that reduce one row per workgroup. CPU drivers are
// fastest with one SIMD vector, GPUs with several.
std::uint32_t elementwise_width(const hal::DeviceInfo& target);
std::uint32_t row_width(const hal::DeviceInfo& target);

// DOT of dot4.inc: whether the device adds products of four bytes by one instruction, and by which words.
hal::Define dot_define(const hal::DeviceInfo& target);

// How the items of a FOR_EACH kernel are distributed.
struct Distribution {
  std::uint32_t width;  // invocations per workgroup
  std::uint32_t per;    // items per invocation
};
Distribution distribution_of(const hal::DeviceInfo& target);

// Workgroups of `width` items for `count` items, in two dimensions that every driver accepts.
std::array<std::uint32_t, 3> grid(std::int64_t count, std::uint32_t width);

// Rounds up to where the next piece of a workspace may begin: a multiple of every driver's offset alignment (512 for
// NVIDIA's OpenCL and rusticl).
constexpr std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, 4096); }

// With the rest of the last word, for 16-bit floats, two of which share a word: kernels bind whole words.
hal::Binding whole_words(hal::Binding binding);

inline hal::Define define(const char* name, std::int64_t value) { return {name, std::to_string(value)}; }

struct Launch {
  std::string kernel;
  std::vector<hal::Define> defines;
  std::uint32_t width = 1;  // workgroup (width, 1, 1)
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::vector<hal::Binding> bindings;
  std::vector<hal::Word> constants;
  std::uint32_t subgroup = 0;  // invocations that a subgroup must have; 0 = as the driver likes
  std::int64_t items = 0;      // of a FOR_EACH kernel: sets width, groups and PER
  std::int64_t pack = 1;       // elements of an item, where that is how PER is to count
  std::uint32_t aliased = 0;   // bindings that are declared as such beside those that are (aliased_bindings)
};
void launch(const kernels::EncodeArgs& args, const Launch& launch);
// Launches a FOR_EACH kernel whose items have loops of their own, with one item per invocation.
void launch_rows(const kernels::EncodeArgs& args, std::int64_t items, Launch launch);

// The variant "simt", for any profile, whose rows have the same bits in any number of rows (Variant::row_exact). With `low_precision`, `fit` decides on 16-bit floats itself.
kernels::Variant simt_variant(std::string about, decltype(kernels::Variant::fit) fit,
                              decltype(kernels::Variant::encode) encode, bool low_precision = false);

// The bindings of the kernels of int8_matmul: a, its scales, b, its scales, the bias (or b's scales again), c.
std::vector<hal::Binding> int8_matmul_bindings(const kernels::EncodeArgs& args);
// The numbers of rows of k that one load takes; 0 = rows do not consist of words.
std::int64_t int8_load_numbers(std::int64_t k);

// Sums (rows, n) of f32 by column in one pass, which is made for some hundred rows. Fits GPUs, and n of a multiple of 4.
bool column_sum_one_pass_fits(const hal::DeviceInfo& target, std::int64_t n);
void column_sum_one_pass(const kernels::EncodeArgs& args, const hal::Binding& rows_in, std::int64_t rows,
                         std::int64_t n, const hal::Binding& out);
// The number of chunks of rows that the first pass of column_sum sums separately.
std::int64_t column_chunks(const hal::DeviceInfo& target, std::int64_t rows, std::int64_t n);
// Sums (rows, n) by column in two passes. `kind` and `inputs`: KIND of column_sum.simt and what it reads, in packs of `pack`
// elements of `dtype`. `workspace` holds column_chunks(target, rows, n) x n floats.
struct ColumnSum {
  int kind = 0;
  std::vector<hal::Binding> inputs;
  hal::DType dtype = hal::DType::f32;
  std::int64_t pack = 1, rows = 0, n = 0;
  hal::Binding workspace, out;
};
void column_sum(const kernels::EncodeArgs& args, const ColumnSum& sum);

}  // namespace meshloom::backends::simt
