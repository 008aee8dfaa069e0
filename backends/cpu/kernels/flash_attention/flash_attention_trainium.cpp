// Attention laid out by partition. Scores: features on the partitions (at most work.span at a time), the tile of
// queries stationary, keys moving, one PSUM bank of scores per tile. P V and dS K: keys on the partitions, P
// transposed block by block. dV and dK: queries on the partitions, which is the layout of P and dS.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/gemm/matmul_micro.h"
#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"

namespace meshloom::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One query tile and one key tile; work.span is the number of partitions.
class PartitionTile {
 public:
  PartitionTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks, bool backward,
                std::int64_t accumulator_rows)
      : work_(work),
        args_(args),
        masks_(masks),
        at_(work),
        bank_(round_up(work.tile_k, micro_tile().columns)),
        depth_(round_up(work.d, micro_tile().columns)),
        depth_v_(round_up(work.dv, micro_tile().columns)) {
    const std::int64_t tile = work.tile_q * bank_, max_depth = std::max(depth_, depth_v_);
    const std::int64_t block = packed_a_floats(work.tile_q, work.span);
    enum class Slot {
      scaled,
      queries,
      cotangents,
      moving,
      scores,
      products,
      softcap_grad,
      transposed,
      kv_rows,
      sums,
      row_max_or_lse,
      row_sum_or_delta,
      rescale,
      query_rows,
      cotangent_rows,
      dk,
      dv,
      count
    };
    ScratchSlots<Slot> scratch;
    scratch.floats(Slot::scaled) = std::int64_t{work.tile_q} * work.d;
    scratch.floats(Slot::queries) = ceil_div(work.d, work.span) * block;
    scratch.floats(Slot::moving) = work.span * bank_;
    scratch.floats(Slot::scores) = tile;
    scratch.floats(Slot::transposed) = block;
    scratch.floats(Slot::kv_rows) = work.span * max_depth;
    scratch.floats(Slot::sums) = work.tile_q * max_depth;
    for (const Slot slot : {Slot::row_max_or_lse, Slot::row_sum_or_delta, Slot::rescale})
      scratch.floats(slot) = work.tile_q;
    if (backward) {
      scratch.floats(Slot::cotangents) = ceil_div(work.dv, work.span) * block;
      scratch.floats(Slot::products) = tile;
      scratch.floats(Slot::softcap_grad) = work.soft_cap > 0 ? tile : 0;
    }
    if (accumulator_rows > 0) {
      scratch.floats(Slot::query_rows) = work.tile_q * depth_;
      scratch.floats(Slot::cotangent_rows) = work.tile_q * depth_v_;
      scratch.floats(Slot::dk) = accumulator_rows * depth_;
      scratch.floats(Slot::dv) = accumulator_rows * depth_v_;
    }
    scratch.cut();
    scaled_ = scratch[Slot::scaled];
    queries_ = scratch[Slot::queries];
    cotangents_ = scratch[Slot::cotangents];
    moving_ = scratch[Slot::moving];
    scores_ = scratch[Slot::scores];
    products_ = scratch[Slot::products];
    softcap_grad_ = scratch[Slot::softcap_grad];
    transposed_ = scratch[Slot::transposed];
    kv_rows_ = scratch[Slot::kv_rows];
    sums_ = scratch[Slot::sums];
    row_max_ = lse_ = scratch[Slot::row_max_or_lse];
    row_sum_ = delta_ = scratch[Slot::row_sum_or_delta];
    rescale_ = scratch[Slot::rescale];
    query_rows_ = scratch[Slot::query_rows];
    cotangent_rows_ = scratch[Slot::cotangent_rows];
    dk_ = scratch[Slot::dk];
    dv_ = scratch[Slot::dv];
  }

  // Loads the stationary side: scaled q, features on the partitions.
  void queries(std::int64_t b, std::int64_t h, std::int64_t q0) {
    b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
    masks_.head(b, h);
    const float* q = args_.at(flash::q) + at_.query(b, q0, h);
    for (std::int64_t i = 0; i < rows_; ++i)
      scaled_copy(scaled_ + i * work_.d, q + i * at_.q_row, work_.d, work_.scale);
    load(scaled_, work_.d, work_.d, queries_, stationary_q_);
    std::fill_n(sums_, rows_ * std::max(depth_, depth_v_), 0.0f);
    // A sink is a first logit without a value.
    const bool sink = work_.sink != 0;
    std::fill_n(row_max_, rows_, sink ? args_.at(static_cast<std::size_t>(work_.sink))[h] : -kInfinity);
    std::fill_n(row_sum_, rows_, sink ? 1.0f : 0.0f);
  }

  // Loads what the backward pass needs besides: do, delta = rowsum(o * do), and with for_keys q and do as moving
  // operands.
  void cotangents(bool for_keys) {
    const std::int64_t from = at_.output(b_, q0_, h_);
    const float *o = args_.at(flash::o) + from, *d_o = args_.at(flash::d_o) + from;
    load(d_o, at_.o_row, work_.dv, cotangents_, stationary_do_);
    for (std::int64_t i = 0; i < rows_; ++i) {
      const float lse = args_.at(flash::lse)[at_.stat(b_, q0_ + i, h_)];
      lse_[i] = lse > -kInfinity ? lse : kInfinity;  // a row that sees no key gets probability 0
      delta_[i] = dot_product(o + i * at_.o_row, d_o + i * at_.o_row, work_.dv);
    }
    if (!for_keys) return;
    pack_b(args_.at(flash::q) + at_.query(b_, q0_, h_), at_.q_row, 1, rows_, work_.d, query_rows_);
    pack_b(d_o, at_.o_row, 1, rows_, work_.dv, cotangent_rows_);
  }

  void forward(std::int64_t k0, bool masked) {
    multiply_stationary(flash::k, k0, stationary_q_, scores_);
    apply_score_mods(masked, nullptr);
    softmax_rows(scores_, rows_, count_, bank_, row_max_, row_sum_, rescale_);
    scale_rows(sums_, rows_, depth_v_, depth_v_, rescale_);
    add_product(flash::v, scores_);
  }
  void finish_forward() {
    for (std::int64_t i = 0; i < rows_; ++i) {
      const bool any = row_max_[i] > -kInfinity;
      scaled_copy(args_.at(flash::o) + at_.output(b_, q0_ + i, h_), sums_ + i * depth_v_, work_.dv,
                  any ? 1.0f / row_sum_[i] : 0.0f);
      args_.at(flash::lse)[at_.stat(b_, q0_ + i, h_)] =
          any ? row_max_[i] + std::log(row_sum_[i]) : -kInfinity;
    }
  }

  void backward(std::int64_t k0, bool masked) {
    multiply_stationary(flash::k, k0, stationary_q_, scores_);
    multiply_stationary(flash::v, k0, stationary_do_, products_);
    apply_score_mods(masked, softcap_grad_);
    backward_rows(scores_, products_, rows_, count_, bank_, lse_, delta_);
    if (work_.soft_cap > 0) multiply_rows(products_, softcap_grad_, rows_, count_, bank_);
  }
  void add_dq() { add_product(flash::k, products_); }
  void finish_dq() {
    for (std::int64_t i = 0; i < rows_; ++i)
      scaled_copy(args_.at(flash::dq) + at_.query(b_, q0_ + i, h_), sums_ + i * depth_, work_.d, work_.scale);
  }

  void begin_keys() {
    std::fill_n(dk_, work_.tile_k * depth_, 0.0f);
    std::fill_n(dv_, work_.tile_k * depth_v_, 0.0f);
  }
  void add_dkv() {
    const std::int64_t columns = micro_tile().columns;
    const BView q{query_rows_, columns, columns * rows_}, d_o{cotangent_rows_, columns, columns * rows_};
    for (std::int64_t j = 0; j < count_; j += work_.span) {
      const std::int64_t keys = std::min<std::int64_t>(work_.span, count_ - j);
      micro_gemm(keys, depth_v_, rows_, plain_a(scores_ + j, 1, bank_), d_o, dv_ + j * depth_v_, depth_v_,
                 true);
      micro_gemm(keys, depth_, rows_, plain_a(products_ + j, 1, bank_), q, dk_ + j * depth_, depth_, true);
    }
  }
  void finish_keys(std::int64_t b, std::int64_t kv, std::int64_t k0) {
    for (std::int64_t j = 0; j < std::min<std::int64_t>(work_.tile_k, work_.t - k0); ++j) {
      scaled_copy(args_.at(flash::dk) + at_.key(b, k0 + j, kv), dk_ + j * depth_, work_.d, work_.scale);
      scaled_copy(args_.at(flash::dv) + at_.value(b, k0 + j, kv), dv_ + j * depth_v_, work_.dv, 1.0f);
    }
  }

 private:
  // Rows of k or v from one key on. `depth`: features, padded to whole panels.
  struct KeyRows {
    const float* data;
    std::int64_t stride, features, depth;
  };
  KeyRows key_rows(flash::Binding tensor, std::int64_t k0) const {
    const std::int64_t kv = h_ / work_.group();
    if (tensor == flash::k) return {args_.at(tensor) + at_.key(b_, k0, kv), at_.k_row, work_.d, depth_};
    return {args_.at(tensor) + at_.value(b_, k0, kv), at_.v_row, work_.dv, depth_v_};
  }

  // Packs rows of q or do into stationary tiles, one per chunk of work.span features.
  void load(const float* from, std::int64_t stride, std::int64_t features, float* into,
            std::vector<AView>& tiles) {
    tiles.clear();
    for (std::int64_t e = 0; e < features; e += work_.span, into += packed_a_floats(work_.tile_q, work_.span))
      tiles.push_back(
          pack_a(from + e, stride, 1, rows_, std::min<std::int64_t>(work_.span, features - e), into));
  }

  // bank (queries x keys) = stationary^T (features x queries) . (k or v)^T (features x keys)
  void multiply_stationary(flash::Binding tensor, std::int64_t k0, const std::vector<AView>& stationary,
                           float* bank) {
    k0_ = k0, count_ = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
    const KeyRows keys = key_rows(tensor, k0);
    for (std::size_t i = 0; i < stationary.size(); ++i) {
      const std::int64_t e = static_cast<std::int64_t>(i) * work_.span;
      const std::int64_t features = std::min<std::int64_t>(work_.span, keys.features - e);
      const BView b = pack_b(keys.data + e, 1, keys.stride, features, count_, moving_);
      micro_gemm(rows_, round_up(count_, micro_tile().columns), features, stationary[i], b, bank, bank_,
                 e > 0);
    }
  }

  // sums (queries x features) += matrix (queries x keys) . rows of k or v, keys on the partitions
  void add_product(flash::Binding tensor, const float* matrix) {
    const KeyRows keys = key_rows(tensor, k0_);
    for (std::int64_t j = 0; j < count_; j += work_.span) {
      const std::int64_t count = std::min<std::int64_t>(work_.span, count_ - j);
      const AView a = pack_a(matrix + j, bank_, 1, rows_, count, transposed_);
      const BView b = pack_b(keys.data + j * keys.stride, keys.stride, 1, count, keys.features, kv_rows_);
      micro_gemm(rows_, keys.depth, count, a, b, sums_, keys.depth, true);
    }
  }

  // Turns q.k into logits: soft cap, ALiBi, bias, mask.
  void apply_score_mods(bool masked, float* softcap_grad) {
    if (work_.soft_cap > 0) cap_scores(scores_, softcap_grad, rows_, count_, bank_, work_.soft_cap);
    if (work_.slopes != 0)
      bias_scores(scores_, rows_, count_, bank_, args_.at(static_cast<std::size_t>(work_.slopes))[h_],
                  q0_ + masks_.mask().offset - k0_, 1, -1);
    if (const float* bias = flash_bias(work_, args_, b_, h_))
      add_rows(scores_, bank_, bias + q0_ * work_.t + k0_, work_.t, rows_, count_);
    if (masked) masks_.mask_by_queries(q0_, rows_, k0_, count_, scores_, bank_);
  }

  const FlashWork& work_;
  const KernelArgs& args_;
  FlashMasks& masks_;
  FlashLayout at_;
  std::int64_t bank_, depth_, depth_v_;
  std::int64_t b_ = 0, h_ = 0, q0_ = 0, rows_ = 0, k0_ = 0, count_ = 0;
  std::vector<AView> stationary_q_, stationary_do_;  // one per chunk of features
  float *scaled_, *queries_, *cotangents_, *moving_, *scores_, *products_, *softcap_grad_, *transposed_,
      *kv_rows_, *sums_, *row_max_, *lse_, *row_sum_, *delta_, *rescale_, *query_rows_, *cotangent_rows_,
      *dk_, *dv_;
};

}  // namespace

// One work item: one query tile of one head.
void run_flash_partition(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  PartitionTile tile(work, args, masks, false, 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t q0 = item % work.tiles_q() * work.tile_q, head = item / work.tiles_q();
    tile.queries(head / work.h, head % work.h, q0);
    masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) { tile.forward(k0, masked); });
    tile.finish_forward();
  }
}

void run_flash_partition_dq(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  PartitionTile tile(work, args, masks, true, 0);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t q0 = item % work.tiles_q() * work.tile_q, head = item / work.tiles_q();
    tile.queries(head / work.h, head % work.h, q0);
    tile.cotangents(false);
    masks.each_key_tile(q0, 0, work.t, [&](std::int64_t k0, bool masked) {
      tile.backward(k0, masked);
      tile.add_dq();
    });
    tile.finish_dq();
  }
}

// One work item: dk and dv of one key tile of one kv head.
void run_flash_partition_dkv(const KernelArgs& args, std::uint32_t begin, std::uint32_t end, int) {
  const auto work = from_words<FlashWork>(args.constants);
  FlashMasks masks(work, args);
  PartitionTile tile(work, args, masks, true, work.tile_k);
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t k0 = item % work.tiles_k() * work.tile_k, head = item / work.tiles_k();
    const std::int64_t b = head / work.kv, kv = head % work.kv;
    tile.begin_keys();
    for (std::int64_t h = kv * work.group(); h < (kv + 1) * work.group(); ++h) {
      masks.head(b, h);
      for (std::int64_t q0 = 0; q0 < work.s; q0 += work.tile_q) {
        const kernels::Cover cover = masks.cover(q0, k0);
        if (cover == kernels::Cover::empty) continue;
        tile.queries(b, h, q0);
        tile.cotangents(true);
        tile.backward(k0, cover == kernels::Cover::partial);
        tile.add_dkv();
      }
    }
    tile.finish_keys(b, kv, k0);
  }
}

}  // namespace meshloom::backends::cpu
