// What the matmul variants share: refusals, bindings and flags of the kernels' common interface.
#pragma once

#include <array>
#include <cstdint>
#include <map>
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
// K in parts of `depth`, between which the caller records barriers. All but the last part leave their sums in `sums` (see
// sums_bytes), since the output may be the residual's storage; the last part finishes C.
std::vector<KPart> k_parts(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims,
                           std::int64_t depth, const hal::Binding& sums);
// The depth of the parts of K for dispatches whose invocations run `fixed` loop iterations and `per_step` for every `step`
// of K: a multiple of `step`, within max_iterations, in about equal parts. 0 = not even one step is possible.
std::int64_t k_depth(const hal::DeviceInfo& target, std::int64_t k, std::int64_t step, std::int64_t per_step,
                     std::int64_t fixed);
// Bytes of workspace for the sums between parts of `depth`, aligned; 0 where there is one part.
std::int64_t sums_bytes(const kernels::MatmulDims& dims, std::int64_t depth);
// The number of items that one invocation may process when each takes `iterations` loop iterations; 0 = none.
std::int64_t max_rounds(const hal::DeviceInfo& target, std::int64_t iterations);
// Each returns the reason why a call is refused, or "".
// More workgroups than the driver accepts.
std::string unsupported_groups(const hal::DeviceInfo& target, std::array<std::int64_t, 3> groups);
// unsupported_groups and unsupported_dtype.
std::string unsupported_matmul(const kernels::CallView& call, const hal::DeviceInfo& target,
                               std::array<std::int64_t, 3> groups);

// Whether rows of A, or of B, in device memory are multiples of eight elements.
inline bool has_wide_a(const kernels::MatmulDims& d) { return (d.trans_a ? d.m : d.k) % 8 == 0; }
inline bool has_wide_b(const kernels::MatmulDims& d) { return (d.trans_b ? d.k : d.n) % 8 == 0; }

// The tiles of `height` rows for `rows` rows in `groups` groups, and those of no group (own_rows.inc).
std::int64_t grouped_tiles(std::int64_t rows, std::int64_t groups, std::int64_t height);

// What tiles are for, besides the sizes of a product.
struct TileUse {
  std::int64_t more_per_column =
      0;  // bytes of workgroup memory that `own` of encode_gpu_tile needs besides, per column
  std::int64_t row_groups =
      0;  // of rows, each with a B of its own (GROUPED 1 of matmul_epilogue.inc); 0 = no groups
  std::int64_t step_groups =
      0;  // of steps of K that end anywhere, each with a C of its own (GROUPED 2); 0 = no groups
  bool unsplit = false;  // K is never divided between workgroups

  bool grouped() const { return row_groups > 0 || step_groups > 0; }
  // How much of K, or how many rows, a group has is known at run time only, and there are tiles of every group.
  bool may_split() const { return !unsplit && !grouped(); }
  // Rows that belong together, on average.
  std::int64_t rows(std::int64_t m) const { return row_groups > 0 ? ceil_div(m, row_groups) : m; }
  // Tiles of `height` rows that m rows are computed in.
  std::int64_t tiles(std::int64_t m, std::int64_t height) const {
    return row_groups > 0 ? grouped_tiles(m, row_groups, height) : ceil_div(m, height);
  }
  // How many of them have rows: of each group the last tile is half full, on average.
  std::int64_t full_tiles(std::int64_t m, std::int64_t height) const {
    return row_groups > 0 ? ceil_div(m + row_groups * height / 2, height) : ceil_div(m, height);
  }
};
// A call of matmul, grouped_matmul or grouped_outer as tiles of C compute it. All rows of x are the rows of one product with the
// matrices of w; and A^T B of the rows of each group is one of as many products whose K is all rows.
struct Product {
  kernels::MatmulDims dims;
  TileUse use;

  // Adds to a kernel of matmul's common interface what groups need: GROUPED, their offsets and their number.
  void add_groups(const kernels::EncodeArgs& args, Launch& own) const;
  // True where steps of K end with a step of `depth`.
  bool has_whole_steps(std::int64_t depth) const { return use.step_groups == 0 && dims.k % depth == 0; }
};
Product product_of(const kernels::CallView& call);
// The tile of the kernel matmul_gpu_tile for a product of these sizes, for any operands; and its dispatches, with `own`
// defines, bindings and constants after the kernel's.
kernels::Fit gpu_tile_fit(const kernels::MatmulDims& dims, const hal::DeviceInfo& target, TileUse use = {});
std::vector<kernels::Fit> gpu_tile_alternatives(const kernels::MatmulDims& dims,
                                                const hal::DeviceInfo& target, TileUse use = {});
// True where the next tiles are on their way while these are multiplied.
bool gpu_tile_prefetches(const std::map<std::string, std::int64_t>& params, const hal::DeviceInfo& target);
void encode_gpu_tile(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims, Launch own = {},
                     TileUse use = {});

std::array<std::uint32_t, 3> matmul_groups(std::array<std::int64_t, 3> groups);

// The elements of a 16-byte load where they divide a row; else 1.
std::int64_t load_width(hal::DType dtype, std::int64_t row);

// True where rows of `length` floats share few sets of the processor's caches: where they are a multiple of 2 KiB.
bool rows_share_sets(std::int64_t length);
// True where a product repays the packing of `rows` rows of one side, `floats` floats in all, that each of `other` rows of
// the other side is multiplied by.
bool repays_packing(std::int64_t rows, std::int64_t other, std::int64_t floats);

}  // namespace meshloom::backends::simt
