// Grouped products: every group is a matmul of its own, done by the matmul kernels. The size of a group is known only
// when the kernel runs, so there are work items for any sizes, and those beyond a group's rows do nothing.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "backends/cpu/gemm/matmul_work.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/ops.h"
#include "kernels/grouped_matmul/grouped_matmul.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kMaxItemRows =
    1024;  // of one work item, so that its sums stay in cache between blocks of k
constexpr std::int64_t kMaxTileColumns = 256;
constexpr std::int64_t kSkinnyRows = 8;  // up to so many rows, W is read in place

struct GroupedWork {
  std::int32_t groups, rows, m, n, k;  // m: of grouped_outer
  std::int32_t trans_b, has_bias, tile_m, tile_n;
  std::int32_t by_rows;        // grouped_matmul: the kernel for few rows whatever a group's number of rows
  std::int32_t dtype, result;  // of the factors, or what is summed; of the output

  std::int64_t tiles_m() const { return ceil_div(m, tile_m); }
  std::int64_t tiles_n() const { return ceil_div(n, tile_n); }
  // Element `index` of a tensor whose first is `first`.
  static std::byte* element(float* first, std::int32_t dtype, std::int64_t index) {
    const auto size = static_cast<std::int64_t>(hal::size_of(static_cast<hal::DType>(dtype)));
    return reinterpret_cast<std::byte*>(first) + index * size;
  }
  std::byte* factor(float* first, std::int64_t index) const { return element(first, dtype, index); }
  std::byte* output(float* first, std::int64_t index) const { return element(first, result, index); }
  // Zeros in `rows` rows of the output, `width` of n columns.
  void clear(std::byte* row, std::int64_t rows, std::int64_t width) const {
    const std::size_t size = hal::size_of(static_cast<hal::DType>(result));
    for (std::int64_t r = 0; r < rows; ++r)
      std::memset(row + static_cast<std::size_t>(r * n) * size, 0, static_cast<std::size_t>(width) * size);
  }
  // The matmul of a group: m and k of it are missing.
  MatmulWork group() const {
    MatmulWork inner{};
    inner.g = 1;
    inner.n = n;
    inner.tile_n = tile_n;
    inner.dtype = static_cast<hal::DType>(dtype);
    inner.result = static_cast<hal::DType>(result);
    return inner;
  }
};

struct Span {
  std::int64_t first, count;
};
// The rows of group e; e == groups: the rows after the last group.
Span rows_of(const GroupedWork& work, const std::int32_t* offsets, std::int64_t e) {
  const std::int64_t first = std::clamp(offsets[e], 0, work.rows);
  const std::int64_t last = e < work.groups ? std::clamp(offsets[e + 1], 0, work.rows) : work.rows;
  return {first, std::max<std::int64_t>(last - first, 0)};
}

// Runs items [begin, end) of one group's matmul on its part of the buffers.
void run_inner(const MatmulWork& work, std::array<std::byte*, 4> buffers, std::int64_t begin,
               std::int64_t end, int worker, bool by_rows = false) {
  const std::vector<hal::Word> words = to_words(work);
  const KernelArgs args{std::span(buffers).first(work.has_bias ? 4u : 3u), {}, words.data(), {}};
  by_rows = by_rows || (work.m <= kSkinnyRows && work.trans_b && !work.trans_a);
  const auto run = by_rows ? run_matmul_skinny : run_matmul_packed;
  run(args, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), worker);
}

// Bindings x (rows, k), w (groups, ...), offsets, bias (groups, n) or w again, y (rows, n). Items: rows in pieces of
// kMaxItemRows x tiles of columns x (groups + the rows after them).
void run_grouped_matmul(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker) {
  const auto work = from_words<GroupedWork>(args.constants);
  const std::int64_t pieces = ceil_div(work.rows, kMaxItemRows), tiles = work.tiles_n(), n = work.n,
                     k = work.k;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t piece = item % pieces, tile = item / pieces % tiles, e = item / pieces / tiles;
    const Span rows = rows_of(work, args.at<const std::int32_t>(2), e);
    const std::int64_t first = rows.first + piece * kMaxItemRows,
                       count = std::min(kMaxItemRows, rows.count - piece * kMaxItemRows);
    if (count <= 0) continue;
    std::byte* y = work.output(args.at(4), first * n);
    if (e == work.groups) {
      const std::int64_t column = tile * work.tile_n;
      work.clear(work.output(args.at(4), first * n + column), count,
                 std::min<std::int64_t>(work.tile_n, n - column));
      continue;
    }
    MatmulWork inner = work.group();
    inner.m = inner.tile_m = static_cast<std::int32_t>(count);
    inner.k = work.k;
    inner.trans_b = work.trans_b;
    inner.has_bias = work.has_bias;
    inner.tile_k = static_cast<std::int32_t>(packed_depth(inner));
    inner.panel = static_cast<std::int32_t>(packed_panel(inner, count));
    std::byte *x = work.factor(args.at(0), first * k), *w = work.factor(args.at(1), e * n * k);
    if (work.has_bias)
      run_inner(inner, {x, w, reinterpret_cast<std::byte*>(args.at(3) + e * n), y}, tile, tile + 1, worker,
                work.by_rows);
    else
      run_inner(inner, {x, w, y}, tile, tile + 1, worker, work.by_rows);
  }
}

// Bindings a (rows, m), b (rows, n), offsets, c (groups, m, n). Items: tiles of m x tiles of n x groups.
void run_grouped_outer(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int worker) {
  const auto work = from_words<GroupedWork>(args.constants);
  const std::int64_t per_group = work.tiles_m() * work.tiles_n(), m = work.m, n = work.n;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t e = item / per_group, tile = item % per_group;
    const Span rows = rows_of(work, args.at<const std::int32_t>(2), e);
    if (rows.count == 0) {
      const std::int64_t row = tile % work.tiles_m() * work.tile_m,
                         column = tile / work.tiles_m() * work.tile_n;
      work.clear(work.output(args.at(3), (e * m + row) * n + column),
                 std::min<std::int64_t>(work.tile_m, m - row),
                 std::min<std::int64_t>(work.tile_n, n - column));
      continue;
    }
    MatmulWork inner = work.group();
    inner.m = work.m;
    inner.k = static_cast<std::int32_t>(rows.count);
    inner.trans_a = 1;
    inner.tile_m = work.tile_m;
    inner.tile_k = static_cast<std::int32_t>(packed_depth(inner));
    inner.panel = static_cast<std::int32_t>(packed_panel(inner, work.tile_m));
    run_inner(inner,
              {work.factor(args.at(0), rows.first * m), work.factor(args.at(1), rows.first * n),
               work.output(args.at(3), e * m * n)},
              tile, tile + 1, worker);
  }
}

// Bindings x (rows, n), offsets, sums (groups, n). Items: tiles of columns x groups.
void run_grouped_sum(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<GroupedWork>(args.constants);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t column = item % work.tiles_n() * work.tile_n, e = item / work.tiles_n();
    const std::int64_t width = std::min<std::int64_t>(work.tile_n, work.n - column);
    const Span rows = rows_of(work, args.at<const std::int32_t>(1), e);
    float* sums = args.at(2) + e * work.n + column;
    std::fill_n(sums, width, 0.0f);
    const auto dtype = static_cast<hal::DType>(work.dtype);
    std::array<float, kMaxTileColumns> wide;
    for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
      const std::byte* row = work.factor(args.at(0), r * work.n + column);
      const float* x = reinterpret_cast<const float*>(row);
      if (dtype != hal::DType::f32) {
        widen(row, dtype, width, wide.data());
        x = wide.data();
      }
      for (std::int64_t i = 0; i < width; ++i) sums[i] += x[i];
    }
  }
}

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// The widest tile of 64 to 256 columns that still gives every core several work items.
std::int64_t tile_width(std::int64_t columns, std::int64_t others, const hal::DeviceInfo& target) {
  const std::int64_t wanted = 4 * std::clamp(target.profile.cores, 1, 64);
  std::int64_t width = kMaxTileColumns;
  while (width > 64 && others * ceil_div(columns, width) < wanted) width /= 2;
  return std::min(width, round_up(columns, 16));
}

Fit fit_tiles(const CallView& call, std::int64_t m, std::int64_t n, std::int64_t groups,
              const hal::DeviceInfo& target) {
  if (std::string no = refusal(call, true); !no.empty()) return Fit::no(std::move(no));
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const kernels::TensorType& type : *types)
      for (const std::int64_t dim : type.shape)
        if (dim >= std::int64_t{1} << 31)
          return Fit::no("a dimension of " + std::to_string(dim) + " exceeds 32 bits");
  const std::int64_t tile_m = std::min<std::int64_t>(m, 384);
  return Fit::yes({{"tile_m", tile_m}, {"tile_n", tile_width(n, groups * ceil_div(m, tile_m), target)}});
}
Fit fit(const CallView& call, const hal::DeviceInfo& target) {
  return fit_tiles(call, 1, call.outputs[0].dim(1), call.inputs[1].dim(0), target);
}
Fit fit_outer(const CallView& call, const hal::DeviceInfo& target) {
  const kernels::TensorType& c = call.outputs[0];
  return fit_tiles(call, c.dim(1), c.dim(2), c.dim(0), target);
}
Fit fit_sum(const CallView& call, const hal::DeviceInfo& target) {
  return fit_tiles(call, 1, call.outputs[0].dim(1), call.outputs[0].dim(0), target);
}

GroupedWork work_of(const EncodeArgs& args, std::int64_t groups, std::int64_t n) {
  GroupedWork work{};
  work.groups = static_cast<std::int32_t>(groups);
  work.rows = static_cast<std::int32_t>(args.call.inputs[0].dim(0));
  work.n = static_cast<std::int32_t>(n);
  work.dtype = static_cast<std::int32_t>(args.call.inputs[0].dtype);
  work.result = static_cast<std::int32_t>(args.call.outputs[0].dtype);
  work.tile_m = static_cast<std::int32_t>(args.choice.params.at("tile_m"));
  work.tile_n = static_cast<std::int32_t>(args.choice.params.at("tile_n"));
  return work;
}

void record_tiles(const EncodeArgs& args, const char* kernel, std::int64_t items,
                  std::initializer_list<hal::Binding> bindings, const GroupedWork& work) {
  Constants constants;
  for (const hal::Word word : to_words(work)) constants.word(word.u);
  record(args, kernel, items, bindings, constants);
}

void encode(const EncodeArgs& args) {
  const kernels::GroupedMatmulDims d = kernels::grouped_matmul_dims(args.call);
  GroupedWork work = work_of(args, d.groups, d.n);
  work.k = static_cast<std::int32_t>(d.k);
  work.trans_b = d.trans_b;
  work.has_bias = d.bias;
  work.by_rows = args.choice.variant->row_exact;
  record_tiles(args, "grouped_matmul", ceil_div(d.rows, kMaxItemRows) * work.tiles_n() * (d.groups + 1),
               {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]),
                reads(args.inputs[d.bias ? 3 : 1]), writes(args.outputs[0])},
               work);
}

void encode_outer(const EncodeArgs& args) {
  const kernels::TensorType& c = args.call.outputs[0];
  GroupedWork work = work_of(args, c.dim(0), c.dim(2));
  work.m = static_cast<std::int32_t>(c.dim(1));
  record_tiles(args, "grouped_outer", work.tiles_m() * work.tiles_n() * c.dim(0),
               {reads(args.inputs[0]), reads(args.inputs[1]), reads(args.inputs[2]), writes(args.outputs[0])},
               work);
}

void encode_sum(const EncodeArgs& args) {
  const kernels::TensorType& sums = args.call.outputs[0];
  const GroupedWork work = work_of(args, sums.dim(0), sums.dim(1));
  record_tiles(args, "grouped_sum", work.tiles_n() * sums.dim(0),
               {reads(args.inputs[0]), reads(args.inputs[1]), writes(args.outputs[0])}, work);
}

}  // namespace

Ops grouped_matmul_ops() {
  const std::string about = "the matmul kernels for each group: register blocks over packed panels";
  return {
      {{"grouped_matmul", run_grouped_matmul},
       {"grouped_outer", run_grouped_outer},
       {"grouped_sum", run_grouped_sum}},
      {{"grouped_matmul",
        {{.name = "simd", .about = about, .fit = fit, .encode = encode, .low_precision = true},
         {.name = "rows",
          .about =
              "the matmul kernel for few rows for groups of any size; a row has the same bits in all of them",
          .fit = fit,
          .encode = encode,
          .low_precision = true,
          .row_exact = true}}},
       {"grouped_outer", {low_precision_variant(about, fit_outer, encode_outer)}},
       {"grouped_sum",
        {low_precision_variant("groups and tiles of columns in parallel, rows in order", fit_sum,
                               encode_sum)}}}};
}

}  // namespace meshloom::backends::cpu
