// Split-K, for products with fewer tiles of C than the device has cores: concurrent workgroups sum parts of K, and a second
// kernel adds the sums that they leave in the workspace.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/simt/kernels/matmul/matmul.h"

namespace meshloom::backends::simt {

// Loop iterations in which OWN_ROWS of matmul_epilogue.inc finds a tile's group, at most.
constexpr std::int64_t kGroupSearch = 32;

// How a kernel tiles a product.
struct Tiles {
  std::array<std::int64_t, 3> groups;  // workgroups along N, M and the batch
  std::int64_t step;                   // of K
  std::int64_t per_step, fixed;        // loop iterations of an invocation (see k_depth)
};

// The fit of a product in `tiles`: `params` and the split of K: "depth" for consecutive parts (see k_parts) and, only where
// there are several concurrent parts, "parts".
kernels::Fit fit_product(const std::map<std::string, std::int64_t>& params, const kernels::MatmulDims& dims,
                         const hal::DeviceInfo& target, const Tiles& tiles);
// The same without concurrent parts.
kernels::Fit fit_whole_product(const std::map<std::string, std::int64_t>& params,
                               const kernels::MatmulDims& dims, const hal::DeviceInfo& target,
                               const Tiles& tiles);
// One of the two, by whether K may be divided.
kernels::Fit fit_product(const std::map<std::string, std::int64_t>& params, const Product& product,
                         const hal::DeviceInfo& target, const Tiles& tiles);
// What the busiest core of a GPU computes of a product, by the default number of parts where `split`: in elements of C with the whole of
// K, and more of them the worse its tiles use what they load. A subgroup's, or an invocation's, own part of a tile is `own`.
struct OwnPart {
  std::int64_t rows, columns;
  double load;  // how long an element of A or B takes to load, in products
};
double busiest_core(const kernels::MatmulDims& dims, const hal::DeviceInfo& target, const Tiles& tiles,
                    std::int64_t tile_elements, const OwnPart& own, bool split);
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
