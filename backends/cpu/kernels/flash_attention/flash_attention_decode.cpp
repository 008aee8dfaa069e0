// Attention of a few queries with many keys. The query heads of a group are rows of one tile, so that keys and
// values are read once for all of them. Where there are few heads, the keys are split over work items of `span`
// tiles each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"

namespace meshloom::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows are the queries of the group's first head, then those of its second, and so on.
class DecodeTile {
 public:
  DecodeTile(const FlashWork& work, const KernelArgs& args)
      : work_(work),
        args_(args),
        masks_(work, args),
        at_(work),
        rows_(work.group() * work.s),
        width_(round_up(work.tile_k, micro_tile().columns)),
        depth_(round_up(work.dv, micro_tile().columns)) {
    const auto [queries, keys, scores, values, sums, row_max, row_sum, rescale] =
        thread_scratch({rows_ * work.d, work.d * width_, rows_ * width_, work.tile_k * depth_, rows_ * depth_,
                        rows_, rows_, rows_});
    queries_ = queries, keys_ = keys, scores_ = scores, values_ = values, sums_ = sums, row_max_ = row_max,
    row_sum_ = row_sum, rescale_ = rescale;
  }

  // `first`: this is the first part of the keys, which counts the sink.
  void begin(std::int64_t b, std::int64_t kv, bool first) {
    b_ = b, kv_ = kv;
    masks_.head(b, kv * work_.group());
    const bool sink = first && work_.sink != 0;
    each_head([&](std::int64_t h, std::int64_t row) {
      for (std::int64_t i = 0; i < work_.s; ++i)
        scaled_copy(queries_ + (row + i) * work_.d, args_.at(flash::q) + at_.query(b, i, h), work_.d,
                    work_.scale);
      std::fill_n(row_max_ + row, work_.s,
                  sink ? args_.at(static_cast<std::size_t>(work_.sink))[h] : -kInfinity);
    });
    std::fill_n(row_sum_, rows_, sink ? 1.0f : 0.0f);
    std::fill_n(sums_, rows_ * depth_, 0.0f);
  }

  // Attends to the key tiles of [begin, end) that any query sees.
  void keys(std::int64_t begin, std::int64_t end) {
    masks_.each_key_tile(0, begin, end, [&](std::int64_t k0, bool masked) { tile(k0, masked); });
  }

  // to(row, h, i, sums, row_max, row_sum) for every row.
  template <typename F>
  void each_row(F to) const {
    each_head([&](std::int64_t h, std::int64_t row) {
      for (std::int64_t i = 0; i < work_.s; ++i)
        to(row + i, h, i, sums_ + (row + i) * depth_, row_max_[row + i], row_sum_[row + i]);
    });
  }

 private:
  template <typename F>
  void each_head(F visit) const {
    for (std::int64_t g = 0; g < work_.group(); ++g) visit(kv_ * work_.group() + g, g * work_.s);
  }

  void tile(std::int64_t k0, bool masked) {
    const std::int64_t count = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
    const float *keys = args_.at(flash::k) + at_.key(b_, k0, kv_),
                *values = args_.at(flash::v) + at_.value(b_, k0, kv_);
    micro_gemm(rows_, round_up(count, micro_tile().columns), work_.d, plain_a(queries_, work_.d, 1),
               pack_b(keys, 1, at_.k_row, work_.d, count, keys_), scores_, width_, false);
    if (work_.soft_cap > 0) cap_scores(scores_, nullptr, rows_, count, width_, work_.soft_cap);
    each_head([&](std::int64_t h, std::int64_t row) {
      float* scores = scores_ + row * width_;
      if (work_.slopes != 0)
        bias_scores(scores, work_.s, count, width_, args_.at(static_cast<std::size_t>(work_.slopes))[h],
                    masks_.mask().offset - k0, 1, -1);
      if (const float* bias = flash_bias(work_, args_, b_, h))
        add_rows(scores, width_, bias + k0, work_.t, work_.s, count);
      if (masked) masks_.mask_by_queries(0, work_.s, k0, count, scores, width_);
    });
    softmax_rows(scores_, rows_, count, width_, row_max_, row_sum_, rescale_);
    scale_rows(sums_, rows_, depth_, depth_, rescale_);
    // Values whose rows are whole panels need no packing.
    const BView v = depth_ == work_.dv ? plain_b(values, at_.v_row)
                                       : pack_b(values, at_.v_row, 1, count, work_.dv, values_);
    micro_gemm(rows_, depth_, count, plain_a(scores_, width_, 1), v, sums_, depth_, true);
  }

  const FlashWork& work_;
  const KernelArgs& args_;
  FlashMasks masks_;
  FlashLayout at_;
  std::int64_t rows_, width_, depth_;
  std::int64_t b_ = 0, kv_ = 0;
  float *queries_, *keys_, *scores_, *values_, *sums_, *row_max_, *row_sum_, *rescale_;
};

void finish(const FlashWork& work, const KernelArgs& args, std::int64_t b, std::int64_t h, std::int64_t i,
            const float* sums, float row_max, float row_sum) {
  const FlashLayout at(work);
  const bool any = row_max > -kInfinity;  // false for a row that sees no key
  scaled_copy(args.at(flash::o) + at.output(b, i, h), sums, work.dv, any ? 1.0f / row_sum : 0.0f);
  args.at(flash::lse)[at.stat(b, i, h)] = any ? row_max + std::log(row_sum) : -kInfinity;
}

}  // namespace

// One work item: `span` key tiles of one kv head. Where a head has several parts, each leaves its sums, row_max and
// row_sum in the workspace (b, h, s, parts, dv + 2).
void run_flash_decode(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t parts = work.key_parts(), part_keys = std::int64_t{work.span} * work.tile_k;
  DecodeTile tile(work, args);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t part = item % parts, head = item / parts, b = head / work.kv;
    tile.begin(b, head % work.kv, part == 0);
    tile.keys(part * part_keys, std::min<std::int64_t>(work.t, (part + 1) * part_keys));
    tile.each_row(
        [&](std::int64_t, std::int64_t h, std::int64_t i, const float* sums, float row_max, float row_sum) {
          if (parts == 1) return finish(work, args, b, h, i, sums, row_max, row_sum);
          float* to = args.at(static_cast<std::size_t>(work.partial)) +
                      (((b * work.h + h) * work.s + i) * parts + part) * (work.dv + 2);
          std::copy_n(sums, work.dv, to);
          to[work.dv] = row_max;
          to[work.dv + 1] = row_sum;
        });
  }
}

// One work item: combines the parts of one query of one head, in order.
void run_flash_decode_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t parts = work.key_parts(), stride = work.dv + 2;
  std::vector<float> sums(static_cast<std::size_t>(work.dv));
  for (std::int64_t item = begin; item < end; ++item) {
    const float* from = args.at(static_cast<std::size_t>(work.partial)) + item * parts * stride;
    float row_max = -kInfinity, row_sum = 0;
    for (std::int64_t p = 0; p < parts; ++p) row_max = std::max(row_max, from[p * stride + work.dv]);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t p = 0; p < parts; ++p) {
      const float own = from[p * stride + work.dv];
      if (own == -kInfinity) continue;
      const float share = std::exp(own - row_max);
      row_sum += share * from[p * stride + work.dv + 1];
      for (std::int64_t e = 0; e < work.dv; ++e)
        sums[static_cast<std::size_t>(e)] += share * from[p * stride + e];
    }
    finish(work, args, item / work.s / work.h, item / work.s % work.h, item % work.s, sums.data(), row_max,
           row_sum);
  }
}

}  // namespace meshloom::backends::cpu
