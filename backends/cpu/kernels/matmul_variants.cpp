// The matmul variants of the CPU: who fits, with which tiles, and how the work is cut.
#include <cblas.h>

#include <algorithm>

#include "backends/cpu/kernels/entries.h"
#include "backends/cpu/kernels/matmul_work.h"

namespace meshloom::backends::cpu {
namespace {

using hal::ProfileKind;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

std::array<std::uint32_t, 3> grid(std::int64_t x, std::int64_t y, std::int64_t z) {
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

void encode_tiles(const EncodeArgs& args, const char* kernel) {
  const MatmulWork work = matmul_work(args);
  record(args, kernel, grid(work.tiles_m(), work.tiles_n(), work.g), to_words(work));
}

Fit fit_naive(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  return Fit::yes({{"tile_m", 1}, {"tile_n", 256}});
}

void encode_naive(const EncodeArgs& args) {
  const MatmulWork work = matmul_work(args);
  record(args, "matmul_naive", grid(work.tiles_n(), work.m, work.g), to_words(work));
}

// Slabs depend on the shape alone, never on the number of threads: sgemm's sums may depend on how C is cut.
Fit fit_blas(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = matmul_refusal(call); !no.empty()) return Fit::no(std::move(no));
  const MatmulWork work = matmul_work(call);
  std::int64_t slabs_m = 1, slabs_n = 1;
  // Halve the longer side until sixteen threads have work, but keep slabs that repay the packing of A and B.
  while (work.g * slabs_m * slabs_n < 16) {
    const std::int64_t rows = div_up(work.m, slabs_m), columns = div_up(work.n, slabs_n);
    const std::int64_t longer = std::max(rows, columns);
    if (longer < 192 || rows * columns * work.k < (1 << 20)) break;
    (rows >= columns ? slabs_m : slabs_n) *= 2;
  }
  return Fit::yes({{"tile_m", std::min<std::int64_t>(work.m, round_up(div_up(work.m, slabs_m), 16))},
                   {"tile_n", std::min<std::int64_t>(work.n, round_up(div_up(work.n, slabs_n), 16))}});
}

void encode_blas(const EncodeArgs& args) {
  openblas_set_num_threads(1);
  encode_tiles(args, "matmul_blas");
}

}  // namespace

std::vector<Kernel> matmul_kernels() {
  return {{"matmul_naive", run_matmul_naive}, {"matmul_blas", run_matmul_blas}};
}

void add_matmul_variants(kernels::Catalog& catalog) {
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "naive",
                               {},
                               0,
                               "one pass over k per stretch of a row; the yardstick of the others",
                               fit_naive,
                               encode_naive});
  catalog.add(kernels::Variant{"matmul",
                               "cpu",
                               "blas",
                               {ProfileKind::host},
                               10,
                               "slabs of C by OpenBLAS: packed operands and register blocks",
                               fit_blas,
                               encode_blas});
}

}  // namespace meshloom::backends::cpu
