// Attention over the pages of a cache. Keys come in tiles of kTile positions, counted from key 0 of their sequence, so that a query's
// output has bits that depend on the query and the keys that it sees alone: not on the queries beside it, nor on the size of a page.
// In f32 they are those of flash_attention's host_tile.
// The rows of a tile's products are the queries of a block, each with heads of its group. An item goes through several kv heads tile
// by tile, whose keys lie side by side: a processor reads whole lines behind one another several times faster than parts of rows.
#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/encode.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"
#include "backends/cpu/kernels/ops.h"
#include "backends/cpu/kernels/paged_attention/few_rows.h"
#include "backends/cpu/kernels/paged_attention/row_prefetch.h"
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
  int o;                  // binding
  std::int64_t heads;     // of a block and kv head, which divide a group
  std::int64_t kv_heads;  // of an item, at most; 1 where groups are divided

  std::int64_t block() const { return std::max<std::int64_t>(1, kRows / heads); }  // queries
  // At most so many blocks have queries, whatever query_starts holds; the heads of each are divided among items.
  std::int64_t blocks() const { return dims.r + dims.n / block(); }
  std::int64_t group_parts() const { return dims.group() / heads; }
  std::int64_t parts() const { return hal::ceil_div(dims.kv, kv_heads) * group_parts(); }
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
  return constants.integer(work.o).integer(work.heads).integer(work.kv_heads);
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
  work.kv_heads = in.integer();
  return work;
}

// A block of queries of one sequence and the heads of an item: queries [first, first + count) of those that begin at query `begin`, and of
// each of kv_heads kv heads from `kv` on the heads of its group from `head` on.
struct PagedBlock {
  std::int64_t r, kv, kv_heads, head, begin, first, count;
  AttentionMask mask;

  Range seen() const { return mask.keys(first, first + count); }
  // The keys that are seen of the tile from k0 on; empty behind the last one.
  Range tile(std::int64_t k0) const {
    const Range keys = seen();
    return {std::max(k0, keys.begin), std::min(k0 + kTile, keys.end)};
  }
  std::int64_t first_tile() const { return seen().begin / kTile * kTile; }
};

// The rows of a pool, wherever their pages lie.
class Pool {
 public:
  Pool(const PagedWork& work, const KernelArgs& args, int binding, int scales, std::int64_t features)
      : dims_(work.dims),
        data_(args.at<const std::byte>(static_cast<std::size_t>(binding))),
        scales_(scales < 0 ? nullptr : args.at<const float>(static_cast<std::size_t>(scales))),
        table_(args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.page_table))),
        features_(features),
        row_bytes_(dims_.stored(features) * static_cast<std::int64_t>(hal::size_of(dims_.pool))),
        prefetch_(dims_, table_, data_, row_bytes_) {}

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
  void gather(std::int64_t r, std::int64_t kv, Range keys, float* into, std::int64_t into_stride) {
    each_run(r, kv, keys, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
      for (std::int64_t i = 0; i < count; ++i) {
        prefetch_.next();
        load(first + i * dims_.kv, into + (j + i - keys.begin) * into_stride);
      }
    });
  }

  const std::byte* row(std::int64_t row) const { return data_ + row * row_bytes_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  RowPrefetch& prefetch() { return prefetch_; }

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
  RowPrefetch prefetch_;
};

// Rows are the heads of a block's first query, then those of the second, and so on, so that the rows that see a tile are the last ones.
class PagedTile {
 public:
  PagedTile(const PagedWork& work, const KernelArgs& args)
      : work_(work),
        args_(args),
        keys_(work, args, PagedAttentionDims::kKPool, work.dims.k_scales, work.dims.d),
        values_(work, args, work.dims.v_pool, work.dims.v_scales, work.dims.value_row()),
        depth_(hal::round_up(work.dims.dv, micro_tile().columns)),
        value_stride_(std::max(depth_, work.dims.value_row())),
        rows_(work.block() * work.heads) {
    const std::int64_t d = work.dims.d, all = work.kv_heads * rows_;
    const auto [queries, dense, transposed, values, scores, sums, row_max, row_sum, rescale] =
        thread_scratch({all * d, work.dims.values_in_keys() ? 0 : kTile * d, d * kTile, kTile * value_stride_,
                        rows_ * kTile, all * depth_, all, all, rows_});
    all_queries_ = queries, dense_ = dense, transposed_ = transposed, tile_ = values, scores_ = scores,
    all_sums_ = sums, all_max_ = row_max, all_sum_ = row_sum, rescale_ = rescale;
    std::fill_n(tile_, kTile * value_stride_, 0.0f);
    std::fill_n(transposed_, d * kTile, 0.0f);
  }

  // `next` is what this thread runs after it, or nullptr.
  void run(const PagedBlock& block, const PagedBlock* next) {
    block_ = block;
    for (std::int64_t i = 0; i < block.kv_heads; ++i) {
      select(i);
      load(block.begin + block.first);
    }
    for (std::int64_t k0 = block.first_tile(); k0 < block.seen().end; k0 += kTile) {
      if (k0 + kTile < block.seen().end)
        prefetch(block, block.tile(k0 + kTile));
      else if (next)
        prefetch(*next, next->tile(next->first_tile()));
      for (std::int64_t i = 0; i < block.kv_heads; ++i) {
        select(i);
        tile(k0, block.tile(k0));
      }
    }
    for (std::int64_t i = 0; i < block.kv_heads; ++i) {
      select(i);
      store(block.begin + block.first);
    }
  }

 private:
  std::int64_t heads() const { return work_.heads; }

  void prefetch(const PagedBlock& block, Range keys) {
    values_.prefetch().set(block.r, block.kv, block.kv_heads, keys);
    if (!work_.dims.values_in_keys()) keys_.prefetch().set(block.r, block.kv, block.kv_heads, keys);
  }

  // What follows is of the item's kv head `i`.
  void select(std::int64_t i) {
    const std::int64_t row = i * rows_;
    kv_ = block_.kv + i;
    head_ = kv_ * work_.dims.group() + block_.head;
    queries_ = all_queries_ + row * work_.dims.d, sums_ = all_sums_ + row * depth_;
    row_max_ = all_max_ + row, row_sum_ = all_sum_ + row;
  }

  void load(std::int64_t query) {
    const PagedAttentionDims& d = work_.dims;
    const std::int64_t row = heads() * d.d, rows = block_.count * heads();
    for (std::int64_t i = 0; i < block_.count; ++i) {
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

  static constexpr std::int64_t kWhole = 16;  // rows of keys that are transposed at a time

  // Whether keys are transposed out of their pages, words of two bf16 as they are (few_rows.h).
  bool transposes_pages(bool few) const {
    const PagedAttentionDims& d = work_.dims;
    return d.page % kWhole == 0 &&
           (d.pool == hal::DType::f32 || (few && d.pool == hal::DType::bf16 && d.d % 2 == 0));
  }

  enum class From { pages, dense, values };

  // The keys of [shown.begin, shown.end) as columns of the tile from k0 on.
  void load_keys(std::int64_t k0, Range shown, From from) {
    const std::int64_t d = work_.dims.d;
    if (from == From::values) {
      transpose(tile_ + (shown.begin - k0) * value_stride_, value_stride_, shown.end - shown.begin, d,
                transposed_ + (shown.begin - k0), kTile);
      return;
    }
    if (from == From::pages) {
      constexpr auto kWord = static_cast<std::int64_t>(sizeof(float));
      const std::int64_t words = keys_.row_bytes() / kWord;
      keys_.each_run(block_.r, kv_, shown, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
        for (std::int64_t i = 0; i < count; i += kWhole) {
          const std::int64_t rows = std::min(kWhole, count - i);
          for (std::int64_t row = 0; row < rows; ++row) keys_.prefetch().next();
          transpose(reinterpret_cast<const float*>(keys_.row(first + i * work_.dims.kv)),
                    work_.dims.kv * words, rows, words, transposed_ + (j + i - k0), kTile);
        }
      });
      return;
    }
    keys_.gather(block_.r, kv_, shown, dense_, d);
    transpose(dense_, d, shown.end - shown.begin, d, transposed_ + (shown.begin - k0), kTile);
  }

  // Rows of values that nobody sees are zeros: what lies there may be anything, and 0 times that be no number.
  void load_values(std::int64_t k0, Range shown) {
    std::fill_n(tile_, (shown.begin - k0) * value_stride_, 0.0f);
    values_.gather(block_.r, kv_, shown, tile_ + (shown.begin - k0) * value_stride_, value_stride_);
    std::fill_n(tile_ + (shown.end - k0) * value_stride_, (k0 + kTile - shown.end) * value_stride_, 0.0f);
  }

  void tile(std::int64_t k0, Range shown) {
    const PagedAttentionDims& d = work_.dims;
    const bool few = block_.count * heads() <= kFewRows, from_pages = transposes_pages(few),
               values_in_place = few && has_few_row_sums(d.dv, d.pool) && (from_pages || !d.values_in_keys());
    if (!values_in_place) load_values(k0, shown);
    const From from = d.values_in_keys() && !values_in_place ? From::values
                      : from_pages                           ? From::pages
                                                             : From::dense;
    load_keys(k0, shown, from);
    // Queries in front of the tile see nothing of it, and those whose window has passed it.
    const AttentionMask& mask = block_.mask;
    const std::int64_t first = block_.first;
    const std::int64_t skip = std::max<std::int64_t>(0, mask.queries(k0).begin - first),
                       queries = std::min(block_.count, mask.queries(shown.end - 1).end - first) - skip,
                       row = skip * heads(), rows = queries * heads();
    if (queries <= 0) return;
    float* scores = scores_ + row * kTile;
    if (few)
      few_row_scores(rows, d.d, queries_ + row * d.d, transposed_,
                     from == From::pages && d.pool == hal::DType::bf16, scores);
    else
      micro_gemm(rows, kTile, d.d, plain_a(queries_ + row * d.d, d.d, 1), plain_b(transposed_, kTile), scores,
                 kTile, false);
    if (d.soft_cap > 0) cap_scores(scores, nullptr, rows, kTile, kTile, static_cast<float>(d.soft_cap));
    if (d.slopes >= 0)
      for (std::int64_t g = 0; g < heads(); ++g)
        bias_scores(scores + g * kTile, queries, kTile, heads() * kTile,
                    args_.at(static_cast<std::size_t>(d.slopes))[head_ + g], first + skip + mask.offset - k0,
                    1, -1);
    for (std::int64_t i = 0; i < queries; ++i) {
      const Range keys = mask.window(first + skip + i);
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
    float* sums = sums_ + row * depth_;
    if (!values_in_place) {
      micro_gemm(rows, depth_, kTile, plain_a(scores, kTile, 1), plain_b(tile_, value_stride_), sums, depth_,
                 true);
      return;
    }
    std::array<const std::byte*, kTile> places;
    values_.each_run(block_.r, kv_, shown, [&](std::int64_t j, std::int64_t count, std::int64_t at) {
      for (std::int64_t i = 0; i < count; ++i)
        places[static_cast<std::size_t>(j + i - k0)] = values_.row(at + i * d.kv);
    });
    few_row_sums(rows, d.dv, scores, places.data(), {shown.begin - k0, shown.end - k0}, d.pool, sums, depth_,
                 values_.prefetch());
  }

  void store(std::int64_t query) {
    const PagedAttentionDims& d = work_.dims;
    const auto size = static_cast<std::int64_t>(hal::size_of(work_.q));
    for (std::int64_t i = 0; i < block_.count * heads(); ++i) {
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
  std::int64_t rows_;          // of a kv head, at most
  PagedBlock block_{};
  std::int64_t kv_ = 0, head_ = 0;
  float *dense_, *transposed_, *tile_, *scores_, *rescale_;
  float *all_queries_, *all_sums_, *all_max_, *all_sum_;                                  // of all kv heads
  float *queries_ = nullptr, *sums_ = nullptr, *row_max_ = nullptr, *row_sum_ = nullptr;  // of one
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

// Item `item`, or none where no query is left for it. The later blocks of a sequence, which see the most keys, come first.
std::optional<PagedBlock> find_block(const PagedWork& work, const KernelArgs& args, std::int64_t item) {
  const PagedAttentionDims& d = work.dims;
  const auto* starts = args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.query_starts));
  const auto* lengths = args.at<const std::int32_t>(static_cast<std::size_t>(work.dims.lengths));
  const std::int64_t part = item % work.parts(), kv = part / work.group_parts() * work.kv_heads;
  std::int64_t block = item / work.parts();
  for (std::int64_t r = 0; r < d.r; ++r) {
    const Range queries = kernels::queries_of(d, starts, r);
    const std::int64_t count = queries.end - queries.begin,
                       blocks = count > 0 ? hal::ceil_div(count, work.block()) : 0;
    if (block < blocks) {
      const std::int64_t first = (blocks - 1 - block) * work.block();
      return PagedBlock{r,
                        kv,
                        std::min(work.kv_heads, d.kv - kv),
                        part % work.group_parts() * work.heads,
                        queries.begin,
                        first,
                        std::min(work.block(), count - first),
                        d.mask(count, lengths[r])};
    }
    block -= blocks;
  }
  return {};
}

// An item is a block of queries and some heads; the last one clears the padding.
void run(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const PagedWork work = from_constants(args);
  PagedTile tile(work, args);
  std::optional<PagedBlock> block = find_block(work, args, begin), next;
  for (std::int64_t item = begin; item < end; ++item, block = next) {
    next = item + 1 < end ? find_block(work, args, item + 1) : std::nullopt;
    if (item == work.items())
      clear_padding(work, args);
    else if (block)
      tile.run(*block, next ? &*next : nullptr);
  }
}

// The inputs but for pools of integers, which the kernel reads whatever they hold.
std::vector<kernels::TensorType> floats_alone(std::vector<kernels::TensorType> inputs) {
  std::erase_if(inputs, [](const kernels::TensorType& type) { return hal::size_of(type.dtype) == 1; });
  return inputs;
}

kernels::Fit fit(const kernels::CallView& call, const hal::DeviceInfo& target) {
  std::string reason = refusal({call.op, floats_alone(call.inputs), call.outputs, call.attrs}, true);
  if (!reason.empty()) return kernels::Fit::no(std::move(reason));
  // As few items as have one for each core: kv heads of an item are read together, and the heads of a group share what is read.
  constexpr std::int64_t kMinHeads = 4, kMaxKvHeads = 4;
  const PagedAttentionDims d = kernels::paged_attention_dims(call);
  const std::int64_t cores = std::clamp(target.profile.cores, 1, 64), sequences = std::min(d.r, d.n),
                     parts = hal::ceil_div(cores, sequences);
  const std::int64_t kv_heads = std::clamp<std::int64_t>(d.kv / parts, 1, kMaxKvHeads);
  std::int64_t heads = d.group();
  if (kv_heads == 1)
    for (std::int64_t fewer = heads - 1; fewer >= kMinHeads && d.h / heads < parts; --fewer)
      if (d.group() % fewer == 0) heads = fewer;
  return kernels::Fit::yes({{"tile_k", kTile}, {"heads", heads}, {"kv_heads", kv_heads}});
}

void encode(const kernels::EncodeArgs& args) {
  const auto& params = args.choice.params;
  const PagedWork work{kernels::paged_attention_dims(args.call),
                       args.call.inputs[PagedAttentionDims::kQ].dtype, static_cast<int>(args.inputs.size()),
                       params.at("heads"), params.at("kv_heads")};
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
