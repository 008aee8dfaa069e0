// Attention over the pages of a cache. Keys come in tiles of kTile positions, counted from key 0 of their sequence, so that a query's
// output has bits that depend on the query and the keys that it sees alone: not on the queries beside it, nor on the size of a page.
// In f32 they are those of flash_attention's host_tile.
// The rows of a tile's products are the queries of a block, each with heads of its group.
#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/quantized/dequantize_nf4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/paged_attention/paged_attention.cpp"
#include "hwy/foreach_target.h"
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::backends::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Codes of a row of quantize_rows, times its scale.
void DequantizeInt8(const std::int8_t* codes, std::int64_t count, float scale, float* into) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  const hn::Rebind<std::int32_t, decltype(d)> d32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes + i))), factor), d, into + i);
#endif
  for (; i < count; ++i) into[i] = static_cast<float>(codes[i]) * scale;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::backends::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::backends::cpu {

HWY_EXPORT(DequantizeInt8);

namespace {

using kernels::AttentionMask;
using kernels::PagedAttentionDims;
using kernels::Range;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kTile = kKeyTile;
constexpr std::int64_t kRows = 96;  // queries times heads of a block, which stay in cache with a tile

// What a dispatch's constants say.
struct PagedWork {
  PagedAttentionDims dims;
  hal::DType q;
  int o;               // binding
  std::int64_t heads;  // of a block, which divide a group

  std::int64_t block() const { return std::max<std::int64_t>(1, kRows / heads); }  // queries
  // At most so many blocks have queries, whatever query_starts holds; the heads of each are divided among items.
  std::int64_t blocks() const { return dims.r + dims.n / block(); }
  std::int64_t parts() const { return dims.h / heads; }
  std::int64_t items() const { return blocks() * parts(); }
};

Constants to_constants(const PagedWork& work) {
  Constants constants;
  for (const std::int64_t value :
       {work.dims.n, work.dims.h, work.dims.d, work.dims.p, work.dims.page, work.dims.kv, work.dims.dv,
        work.dims.r, work.dims.m, work.dims.left, work.dims.block, std::int64_t{work.dims.k_scales},
        std::int64_t{work.dims.v_scales}, std::int64_t{work.dims.sink}, std::int64_t{work.dims.slopes},
        std::int64_t{work.dims.v_pool}, std::int64_t{work.dims.page_table},
        std::int64_t{work.dims.query_starts}, std::int64_t{work.dims.lengths}})
    constants.integer(value);
  constants.real(work.dims.scale).real(work.dims.soft_cap).dtype(work.q).dtype(work.dims.pool);
  constants.word(work.dims.ring ? 1 : 0);
  return constants.integer(work.o).integer(work.heads);
}

PagedWork from_constants(const KernelArgs& args) {
  ConstantReader in(args);
  PagedWork work{};
  PagedAttentionDims& d = work.dims;
  for (std::int64_t* value : {&d.n, &d.h, &d.d, &d.p, &d.page, &d.kv, &d.dv, &d.r, &d.m, &d.left, &d.block})
    *value = in.integer();
  for (int* input :
       {&d.k_scales, &d.v_scales, &d.sink, &d.slopes, &d.v_pool, &d.page_table, &d.query_starts, &d.lengths})
    *input = static_cast<int>(in.integer());
  d.scale = in.real();
  d.soft_cap = in.real();
  work.q = in.dtype();
  d.pool = in.dtype();
  d.ring = in.word() != 0;
  work.o = static_cast<int>(in.integer());
  work.heads = in.integer();
  return work;
}

// The rows of a pool for one kv head, wherever their pages lie.
class Pool {
 public:
  Pool(const PagedWork& work, const KernelArgs& args, int binding, int scales, std::int64_t features)
      : dims_(work.dims),
        data_(args.at<const std::byte>(static_cast<std::size_t>(binding))),
        scales_(scales < 0 ? nullptr : args.at<const float>(static_cast<std::size_t>(scales))),
        table_(args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.page_table))),
        features_(features),
        row_bytes_(dims_.stored(features) * static_cast<std::int64_t>(hal::size_of(dims_.pool))) {}

  std::int64_t stride() const {
    return dims_.kv * features_;
  }  // features from one key to the next within a page
  // Calls f(key, count, row of the first) for the keys of [keys.begin, keys.end) page by page.
  template <typename F>
  void each_run(std::int64_t r, std::int64_t kv, Range keys, F f) const {
    for (std::int64_t j = keys.begin; j < keys.end;) {
      const std::int64_t at = j % dims_.page, count = std::min(dims_.page - at, keys.end - j);
      f(j, count, dims_.row_of(table_, r, j, kv));
      j += count;
    }
  }
  // Rows of f32, `into_stride` floats apart; `into` is the place of keys.begin.
  void gather(std::int64_t r, std::int64_t kv, Range keys, float* into, std::int64_t into_stride) const {
    each_run(r, kv, keys, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
      for (std::int64_t i = 0; i < count; ++i)
        load(first + i * dims_.kv, into + (j + i - keys.begin) * into_stride);
    });
  }
  const float* floats(std::int64_t row) const {
    return reinterpret_cast<const float*>(data_) + row * features_;
  }

 private:
  void load(std::int64_t row, float* into) const {
    const std::byte* from = data_ + row * row_bytes_;
    switch (dims_.pool) {
      case hal::DType::f32:
        std::memcpy(into, from, static_cast<std::size_t>(row_bytes_));
        break;
      case hal::DType::i8:
        HWY_DYNAMIC_DISPATCH(DequantizeInt8)
        (reinterpret_cast<const std::int8_t*>(from), features_, scales_[row], into);
        break;
      case hal::DType::u8:
        dequantize_nf4(nf4_weights(reinterpret_cast<const std::uint8_t*>(from),
                                   scales_ + row * dims_.scales(features_), nullptr, features_, dims_.block),
                       features_, into);
        break;
      default:
        widen(from, dims_.pool, features_, into);
    }
  }

  const PagedAttentionDims& dims_;
  const std::byte* data_;
  const float* scales_;
  const std::int32_t* table_;
  std::int64_t features_, row_bytes_;
};

// One block of queries of some heads of one kv head's group. Rows are these heads of the first query, then those of the second, and so on, so that
// the rows that see a tile are the last ones.
class PagedTile {
 public:
  PagedTile(const PagedWork& work, const KernelArgs& args)
      : work_(work),
        args_(args),
        keys_(work, args, PagedAttentionDims::kKPool, work.dims.k_scales, work.dims.d),
        values_(work, args, work.dims.v_pool, work.dims.v_scales, work.dims.value_row()),
        depth_(hal::round_up(work.dims.dv, micro_tile().columns)),
        value_stride_(std::max(depth_, work.dims.value_row())) {
    const std::int64_t rows = work.block() * work.heads, d = work.dims.d;
    const auto [queries, dense, transposed, values, scores, sums, row_max, row_sum, rescale] =
        thread_scratch({rows * d, work.dims.values_in_keys() ? 0 : kTile * d, d * kTile,
                        kTile * value_stride_, rows * kTile, rows * depth_, rows, rows, rows});
    queries_ = queries, dense_ = dense, transposed_ = transposed, tile_ = values, scores_ = scores,
    sums_ = sums, row_max_ = row_max, row_sum_ = row_sum, rescale_ = rescale;
    std::fill_n(tile_, kTile * value_stride_, 0.0f);
    std::fill_n(transposed_, d * kTile, 0.0f);
  }

  // Queries [first, first + count) of those of sequence r, which begin at query `begin`, and their heads from `head` on.
  void run(std::int64_t r, std::int64_t head, const AttentionMask& mask, std::int64_t begin,
           std::int64_t first, std::int64_t count) {
    r_ = r, head_ = head, kv_ = head / work_.dims.group(), mask_ = mask, first_ = first, count_ = count;
    load(begin + first);
    const Range seen = mask.keys(first, first + count);
    for (std::int64_t k0 = seen.begin / kTile * kTile; k0 < seen.end; k0 += kTile)
      tile(k0, {std::max(k0, seen.begin), std::min(k0 + kTile, seen.end)});
    store(begin + first);
  }

 private:
  std::int64_t heads() const { return work_.heads; }

  void load(std::int64_t query) {
    const PagedAttentionDims& d = work_.dims;
    const std::int64_t row = heads() * d.d, rows = count_ * heads();
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t at = ((query + i) * d.h + head_) * d.d;
      widen(args_.at<const std::byte>(PagedAttentionDims::kQ) +
                at * static_cast<std::int64_t>(hal::size_of(work_.q)),
            work_.q, row, queries_ + i * row);
    }
    scaled_copy(queries_, queries_, rows * d.d, static_cast<float>(d.scale));
    // A sink is a first logit without a value.
    for (std::int64_t i = 0; i < rows; ++i)
      row_max_[i] = d.sink < 0 ? -kInfinity : args_.at(static_cast<std::size_t>(d.sink))[head_ + i % heads()];
    std::fill_n(row_sum_, rows, d.sink < 0 ? 0.0f : 1.0f);
    std::fill_n(sums_, rows * depth_, 0.0f);
  }

  // The keys of [shown.begin, shown.end) as columns of the tile from k0 on. Those that have values in them lie in tile_.
  void load_keys(std::int64_t k0, Range shown) {
    const std::int64_t d = work_.dims.d;
    if (work_.dims.values_in_keys()) {
      transpose(tile_ + (shown.begin - k0) * value_stride_, value_stride_, shown.end - shown.begin, d,
                transposed_ + (shown.begin - k0), kTile);
      return;
    }
    constexpr std::int64_t kWhole = 16;  // rows that are transposed at a time
    if (work_.dims.pool == hal::DType::f32 && work_.dims.page % kWhole == 0) {
      keys_.each_run(r_, kv_, shown, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
        transpose(keys_.floats(first), keys_.stride(), count, d, transposed_ + (j - k0), kTile);
      });
      return;
    }
    keys_.gather(r_, kv_, shown, dense_, d);
    transpose(dense_, d, shown.end - shown.begin, d, transposed_ + (shown.begin - k0), kTile);
  }

  // Rows of values that nobody sees are zeros: what lies there may be anything, and 0 times that be no number.
  void load_values(std::int64_t k0, Range shown) {
    std::fill_n(tile_, (shown.begin - k0) * value_stride_, 0.0f);
    values_.gather(r_, kv_, shown, tile_ + (shown.begin - k0) * value_stride_, value_stride_);
    std::fill_n(tile_ + (shown.end - k0) * value_stride_, (k0 + kTile - shown.end) * value_stride_, 0.0f);
  }

  void tile(std::int64_t k0, Range shown) {
    const PagedAttentionDims& d = work_.dims;
    load_values(k0, shown);
    load_keys(k0, shown);
    // Queries in front of the tile see nothing of it, and those whose window has passed it.
    const std::int64_t skip = std::max<std::int64_t>(0, mask_.queries(k0).begin - first_),
                       queries = std::min(count_, mask_.queries(shown.end - 1).end - first_) - skip,
                       row = skip * heads(), rows = queries * heads();
    if (queries <= 0) return;
    float* scores = scores_ + row * kTile;
    micro_gemm(rows, kTile, d.d, plain_a(queries_ + row * d.d, d.d, 1), plain_b(transposed_, kTile), scores,
               kTile, false);
    if (d.soft_cap > 0) cap_scores(scores, nullptr, rows, kTile, kTile, static_cast<float>(d.soft_cap));
    if (d.slopes >= 0)
      for (std::int64_t g = 0; g < heads(); ++g)
        bias_scores(scores + g * kTile, queries, kTile, heads() * kTile,
                    args_.at(static_cast<std::size_t>(d.slopes))[head_ + g],
                    first_ + skip + mask_.offset - k0, 1, -1);
    for (std::int64_t i = 0; i < queries; ++i) {
      const Range keys = mask_.window(first_ + skip + i);
      const std::int64_t begin = std::clamp<std::int64_t>(keys.begin - k0, 0, kTile),
                         end = std::clamp<std::int64_t>(keys.end - k0, begin, kTile);
      if (begin == 0 && end == kTile) continue;
      for (std::int64_t g = 0; g < heads(); ++g) {
        float* at = scores + (i * heads() + g) * kTile;
        std::fill(at, at + begin, -kInfinity);
        std::fill(at + end, at + kTile, -kInfinity);
      }
    }
    softmax_tile_rows(scores, rows, kTile, row_max_ + row, row_sum_ + row, rescale_ + row);
    scale_rows(sums_ + row * depth_, rows, depth_, depth_, rescale_ + row);
    micro_gemm(rows, depth_, kTile, plain_a(scores, kTile, 1), plain_b(tile_, value_stride_),
               sums_ + row * depth_, depth_, true);
  }

  void store(std::int64_t query) {
    const PagedAttentionDims& d = work_.dims;
    const auto size = static_cast<std::int64_t>(hal::size_of(work_.q));
    for (std::int64_t i = 0; i < count_ * heads(); ++i) {
      float* sums = sums_ + i * depth_;
      scaled_copy(sums, sums, d.dv, row_max_[i] > -kInfinity ? 1.0f / row_sum_[i] : 0.0f);
      const std::int64_t at = ((query + i / heads()) * d.h + head_ + i % heads()) * d.dv;
      std::byte* into = args_.at<std::byte>(static_cast<std::size_t>(work_.o)) + at * size;
      if (work_.q == hal::DType::f32)
        std::memcpy(into, sums, static_cast<std::size_t>(d.dv) * sizeof(float));
      else
        narrow(sums, d.dv, work_.q, into);
    }
  }

  const PagedWork& work_;
  const KernelArgs& args_;
  Pool keys_, values_;
  std::int64_t depth_;         // features of values, padded to whole panels
  std::int64_t value_stride_;  // of tile_
  std::int64_t r_ = 0, head_ = 0, kv_ = 0, first_ = 0, count_ = 0;
  AttentionMask mask_;
  float *queries_, *dense_, *transposed_, *tile_, *scores_, *sums_, *row_max_, *row_sum_, *rescale_;
};

// The outputs of queries of no sequence.
void clear_padding(const PagedWork& work, const KernelArgs& args) {
  const auto* starts = args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.query_starts));
  const std::int64_t row = work.dims.h * work.dims.dv * static_cast<std::int64_t>(hal::size_of(work.q));
  const std::int64_t begin = std::clamp<std::int64_t>(starts[0], 0, work.dims.n),
                     end = std::clamp<std::int64_t>(starts[work.dims.r], begin, work.dims.n);
  std::byte* o = args.at<std::byte>(static_cast<std::size_t>(work.o));
  std::memset(o, 0, static_cast<std::size_t>(begin * row));
  std::memset(o + end * row, 0, static_cast<std::size_t>((work.dims.n - end) * row));
}

// An item is a block of queries and some heads; the last one clears the padding. The later blocks of a sequence, which see the most
// keys, come first.
void run(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const PagedWork work = from_constants(args);
  const PagedAttentionDims& d = work.dims;
  PagedTile tile(work, args);
  const auto* starts = args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.query_starts));
  const auto* lengths = args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.lengths));
  for (std::int64_t item = begin; item < end; ++item) {
    if (item == work.items()) {
      clear_padding(work, args);
      continue;
    }
    std::int64_t block = item / work.parts();
    for (std::int64_t r = 0; r < d.r; ++r) {
      const Range queries = kernels::queries_of(d, starts, r);
      const std::int64_t count = queries.end - queries.begin,
                         blocks = count > 0 ? hal::ceil_div(count, work.block()) : 0;
      if (block >= blocks) {
        block -= blocks;
        continue;
      }
      const std::int64_t first = (blocks - 1 - block) * work.block();
      tile.run(r, item % work.parts() * work.heads, d.mask(count, lengths[r]), queries.begin, first,
               std::min(work.block(), count - first));
      break;
    }
  }
}

// The inputs but for pools of integers, which the kernel reads whatever they hold.
std::vector<kernels::TensorType> floats_alone(std::vector<kernels::TensorType> inputs) {
  std::erase_if(inputs, [](const kernels::TensorType& type) { return hal::size_of(type.dtype) == 1; });
  return inputs;
}

// Heads of one item. Those of a group share what is read of the keys; where that leaves cores without work they are divided.
std::int64_t item_heads(const PagedAttentionDims& d, const hal::DeviceInfo& target) {
  constexpr std::int64_t kFewest = 4;
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64), sequences = std::min(d.r, d.n);
  std::int64_t heads = d.group();
  for (std::int64_t fewer = heads - 1; fewer >= kFewest && sequences * (d.h / heads) < cores; --fewer)
    if (d.group() % fewer == 0) heads = fewer;
  return heads;
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  std::string reason = refusal({call.op, floats_alone(call.inputs), call.outputs, call.attrs}, true);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  return kernels::Fit::yes(
      {{"tile_k", kTile}, {"heads", item_heads(kernels::paged_attention_dims(call), target)}});
}

void encode(const kernels::EncodeArgs& args) {
  const PagedWork work{kernels::paged_attention_dims(args.call),
                       args.call.inputs[PagedAttentionDims::kQ].dtype, static_cast<int>(args.inputs.size()),
                       args.choice.params.at("heads")};
  std::vector<hal::Binding> bindings;
  for (const hal::Binding& input : args.inputs) bindings.push_back(reads(input));
  bindings.push_back(writes(args.outputs[0]));
  record_dispatch(args, "paged_attention", grid(work.items() + 1, 1, 1), bindings,
                  to_constants(work).words());
}

}  // namespace

Ops paged_attention_ops() {
  return {{{"paged_attention", run}},
          {{"paged_attention",
            {{.name = "pages",
              .about = "keys in tiles gathered from their pages, for a block of queries and heads of a "
                       "group; a query's bits "
                       "depend on no other query",
              .fit = fit,
              .encode = encode,
              .low_precision = true,
              .row_exact = true}}}}};
}

}  // namespace meshloom::backends::cpu
#endif
