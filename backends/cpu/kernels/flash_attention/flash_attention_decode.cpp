// Attention of a few queries with many keys: the query heads of a group are rows of one tile, so that keys
// and values are read once for all of them, and the keys are cut into `span` tiles per work item where heads
// are few.
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
    const auto s = thread_scratch({rows_ * work.d, work.d * width_, rows_ * width_, work.tile_k * depth_,
                                   rows_ * depth_, rows_, rows_, rows_});
    queries_ = s[0], keys_ = s[1], scores_ = s[2], values_ = s[3], sums_ = s[4], largest_ = s[5],
    total_ = s[6], shrink_ = s[7];
  }

  // `first`: this part of the keys is the one that counts the sink.
  void begin(std::int64_t b, std::int64_t kv, bool first) {
    b_ = b, kv_ = kv;
    masks_.head(b, kv * work_.group());
    const bool sink = first && work_.sink != 0;
    each_head([&](std::int64_t h, std::int64_t row) {
      for (std::int64_t i = 0; i < work_.s; ++i)
        scaled_copy(queries_ + (row + i) * work_.d, args_.at(flash::q) + at_.query(b, i, h), work_.d,
                    work_.scale);
      std::fill_n(largest_ + row, work_.s,
                  sink ? args_.at(static_cast<std::size_t>(work_.sink))[h] : -kInfinity);
    });
    std::fill_n(total_, rows_, sink ? 1.0f : 0.0f);
    std::fill_n(sums_, rows_ * depth_, 0.0f);
  }

  // The key tiles of [begin, end) that any query sees.
  void keys(std::int64_t begin, std::int64_t end) {
    masks_.each_key_tile(0, begin, end, [&](std::int64_t k0, bool masked) { tile(k0, masked); });
  }

  // to(row, h, i, sums, largest, total) for every row.
  template <typename F>
  void each_row(F to) const {
    each_head([&](std::int64_t h, std::int64_t row) {
      for (std::int64_t i = 0; i < work_.s; ++i)
        to(row + i, h, i, sums_ + (row + i) * depth_, largest_[row + i], total_[row + i]);
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
      if (masked) masks_.hide_by_queries(0, work_.s, k0, count, scores, width_);
    });
    softmax_rows(scores_, rows_, count, width_, largest_, total_, shrink_);
    scale_rows(sums_, rows_, depth_, depth_, shrink_);
    // Rows of whole panels are read where they lie.
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
  float *queries_, *keys_, *scores_, *values_, *sums_, *largest_, *total_, *shrink_;
};

void finish(const FlashWork& work, const KernelArgs& args, std::int64_t b, std::int64_t h, std::int64_t i,
            const float* sums, float largest, float total) {
  const FlashLayout at(work);
  const bool any = largest > -kInfinity;  // a row that sees nothing has no largest score
  scaled_copy(args.at(flash::o) + at.output(b, i, h), sums, work.dv, any ? 1.0f / total : 0.0f);
  args.at(flash::lse)[at.stat(b, i, h)] = any ? largest + std::log(total) : -kInfinity;
}

}  // namespace

// One work item: `span` key tiles of one kv head. Of several, each leaves (b, h, s, parts, dv + 2) in the
// workspace: sums, largest score and total.
void run_flash_decode(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t parts = work.key_parts(), part_keys = std::int64_t{work.span} * work.tile_k;
  DecodeTile tile(work, args);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t part = item % parts, head = item / parts, b = head / work.kv;
    tile.begin(b, head % work.kv, part == 0);
    tile.keys(part * part_keys, std::min<std::int64_t>(work.t, (part + 1) * part_keys));
    tile.each_row(
        [&](std::int64_t, std::int64_t h, std::int64_t i, const float* sums, float largest, float total) {
          if (parts == 1) return finish(work, args, b, h, i, sums, largest, total);
          float* to = args.at(static_cast<std::size_t>(work.partial)) +
                      (((b * work.h + h) * work.s + i) * parts + part) * (work.dv + 2);
          std::copy_n(sums, work.dv, to);
          to[work.dv] = largest;
          to[work.dv + 1] = total;
        });
  }
}

// One work item: one query of one head, from what the parts of its keys gave, in their order.
void run_flash_decode_sums(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  const std::int64_t parts = work.key_parts(), stride = work.dv + 2;
  std::vector<float> sums(static_cast<std::size_t>(work.dv));
  for (std::int64_t item = begin; item < end; ++item) {
    const float* from = args.at(static_cast<std::size_t>(work.partial)) + item * parts * stride;
    float largest = -kInfinity, total = 0;
    for (std::int64_t p = 0; p < parts; ++p) largest = std::max(largest, from[p * stride + work.dv]);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t p = 0; p < parts; ++p) {
      const float own = from[p * stride + work.dv];
      if (own == -kInfinity) continue;
      const float share = std::exp(own - largest);
      total += share * from[p * stride + work.dv + 1];
      for (std::int64_t e = 0; e < work.dv; ++e)
        sums[static_cast<std::size_t>(e)] += share * from[p * stride + e];
    }
    finish(work, args, item / work.s / work.h, item / work.s % work.h, item % work.s, sums.data(), largest,
           total);
  }
}

}  // namespace meshloom::backends::cpu
