// Split-K, for products whose tiles of C do not keep all cores of the device busy: concurrent workgroups sum parts of K, and a
// second kernel adds the sums that they leave in the workspace.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// Loop iterations in which OWN_ROWS of own_rows.inc finds a tile's group, at most.
constexpr std::int64_t kGroupSearch = 32;

// How a kernel tiles a product.
struct Tiles {
  std::array<std::int64_t, 3> groups;  // workgroups along N, M and the batch
  std::int64_t step;                   // of K
  std::int64_t per_step, fixed;        // loop iterations of an invocation (see k_depth)
  // For GPUs, by which product_seconds chooses tiles and parts of K.
  std::int64_t elements = 0;  // of C in a tile
  double rate = 0;  // FLOP/s of all cores with such tiles; 0: parts of K only give every core workgroups
  std::int64_t per_core = 2;  // workgroups that keep a core busy: some wait for memory while others multiply
};
// A block of rows x columns sums, whose factors are loaded once; each takes as long as `load` products.
struct LoadedBlock {
  std::int64_t rows, columns;
  double load;
};
// The rate of tiles of such blocks, of an invocation, a subgroup or a workgroup, which multiply factors of `dtype`.
double tile_rate(const hal::DeviceInfo& target, hal::DType dtype, const std::vector<LoadedBlock>& blocks);
// The seconds that a product is expected to take on a GPU, with the default number of parts where `split`. Tiles come in turns of
// one per core; sums of parts are written and read by a second kernel.
double product_seconds(const kernels::MatmulDims& dims, const hal::DeviceInfo& target, const Tiles& tiles,
                       bool split);

// The fit of a product in `tiles`: `params` and the split of K: "depth" for consecutive parts (see k_parts) and, only where
// there are several concurrent parts, "parts".
kernels::Fit fit_product(const std::map<std::string, std::int64_t>& params, const kernels::MatmulDims& dims,
                         const hal::DeviceInfo& target, const Tiles& tiles);
// The same, with concurrent parts only where K may be divided.
kernels::Fit fit_product(const std::map<std::string, std::int64_t>& params, const Product& product,
                         const hal::DeviceInfo& target, const Tiles& tiles);
// The fits that tuning tries: with other numbers of parts too, one of them 1, where K may be divided.
std::vector<kernels::Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                               const kernels::MatmulDims& dims, const hal::DeviceInfo& target,
                                               const Tiles& tiles);
std::vector<kernels::Fit> product_alternatives(const std::map<std::string, std::int64_t>& params,
                                               const Product& product, const hal::DeviceInfo& target,
                                               const Tiles& tiles);

// Records a product that is split as args.choice says. `tiles` is a kernel of matmul's common interface (matmul_epilogue.inc,
// OWN_K_RANGE) with its own defines, bindings and constants, which follow the common ones.
void launch_product(const kernels::EncodeArgs& args, const kernels::MatmulDims& dims, const Launch& tiles);

}  // namespace meshloom::backends::simt
