#include "backends/cpu/kernels/flash_attention_streamed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/flash_attention_vector.h"
#include "backends/cpu/kernels/matmul_scratch.h"

namespace meshloom::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Cuts a tile of queries where the mask cuts it, so that a triangle costs little more than its area; the
// whole tile is one stretch where nothing is masked.
void cut(const FlashWork& work, std::int64_t q0, std::int64_t k0, std::int64_t keys, std::int64_t width,
         bool masked, std::vector<Stretch>& into) {
  constexpr std::int64_t kColumns = 32;  // a multiple of a panel's
  into.clear();
  if (!masked) {
    into.push_back({0, width, keys});
    return;
  }
  for (std::int64_t first = 0; first < width; first += kColumns) {
    const std::int64_t columns = std::min(kColumns, width - first);
    const std::int64_t seen = std::min(keys, q0 + first + columns + work.ahead() - k0);
    if (seen > 0) into.push_back({first, columns, seen});
  }
}

// Scores of the stretch's queries that do not see a key become -infinity. Earlier queries see fewer keys.
void mask_columns(const FlashWork& work, std::int64_t q0, std::int64_t k0, const Stretch& stretch,
                  std::int64_t width, float* scores) {
  for (std::int64_t j = 0; j < stretch.keys; ++j) {
    const std::int64_t hidden =
        std::clamp<std::int64_t>(k0 + j - work.ahead() - q0 - stretch.first, 0, stretch.columns);
    std::fill_n(scores + j * width + stretch.first, hidden, -kInfinity);
  }
}

// (rows, d) -> (d, width), scaled, columns beyond `rows` zero.
void load_transposed(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d, float scale,
                     std::int64_t width, float* into) {
  transpose(from, stride, rows, d, into, width);
  for (std::int64_t e = 0; e < d; ++e) {
    if (scale != 1.0f) scaled_copy(into + e * width, into + e * width, rows, scale);
    std::fill(into + e * width + rows, into + (e + 1) * width, 0.0f);
  }
}

}  // namespace

ForwardTile::ForwardTile(const FlashWork& work, const KernelArgs& args)
    : work_(work),
      args_(args),
      at_(work),
      width_(round_up(work.tile_q, micro_tile().columns)),
      depth_(round_up(work.d, micro_tile().columns)) {
  const auto scratch = thread_scratch({work.d * width_, work.tile_k * width_, work.tile_k * depth_,
                                       work.tile_q * depth_, width_, width_, width_});
  queries_ = scratch[0], scores_ = scratch[1], values_ = scratch[2], sums_ = scratch[3],
  largest_ = scratch[4], total_ = scratch[5], shrink_ = scratch[6];
}

void ForwardTile::begin(std::int64_t b, std::int64_t h, std::int64_t q0) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  load_transposed(args_.at(flash::q) + at_.query(b, q0, h), at_.q_row, rows_, work_.d, work_.scale, width_,
                  queries_);
  std::fill_n(sums_, rows_ * depth_, 0.0f);
  std::fill_n(largest_, width_, -kInfinity);
  std::fill_n(total_, width_, 0.0f);
}

void ForwardTile::keys(std::int64_t k0, bool masked) {
  const std::int64_t count = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
  const std::int64_t from = at_.key(b_, k0, h_ / work_.group());
  const AView k = plain_a(args_.at(flash::k) + from, at_.k_row, 1);
  const BView v = pack_b(args_.at(flash::v) + from, at_.k_row, 1, count, work_.d, values_);
  cut(work_, q0_, k0, count, width_, masked, stretches_);
  for (const Stretch& s : stretches_) {
    const BView q{queries_ + s.first, width_, micro_tile().columns};
    micro_gemm(s.keys, s.columns, work_.d, k, q, scores_ + s.first, width_, false);
    if (masked) mask_columns(work_, q0_, k0, s, width_, scores_);
    softmax_columns(scores_ + s.first, s.keys, s.columns, width_, largest_ + s.first, total_ + s.first,
                    shrink_ + s.first);
    const std::int64_t rows = std::min(s.columns, rows_ - s.first);
    if (rows <= 0) continue;
    float* sums = sums_ + s.first * depth_;
    scale_rows(sums, rows, depth_, depth_, shrink_ + s.first);
    micro_gemm(rows, depth_, s.keys, plain_a(scores_ + s.first, 1, width_), v, sums, depth_, true);
  }
}

void ForwardTile::finish() {
  for (std::int64_t i = 0; i < rows_; ++i) {
    scaled_copy(args_.at(flash::o) + at_.query(b_, q0_ + i, h_), sums_ + i * depth_, work_.d,
                1.0f / total_[i]);
    args_.at(flash::lse)[at_.stat(b_, q0_ + i, h_)] = largest_[i] + std::log(total_[i]);
  }
}

BackwardTile::BackwardTile(const FlashWork& work, const KernelArgs& args, std::int64_t held_keys)
    : work_(work),
      args_(args),
      at_(work),
      width_(round_up(work.tile_q, micro_tile().columns)),
      depth_(round_up(work.d, micro_tile().columns)) {
  const auto scratch =
      thread_scratch({work.d * width_, work.d * width_, work.tile_q * depth_, work.tile_q * depth_,
                      work.tile_k * width_, work.tile_k * width_, work.tile_k * depth_, work.tile_q * depth_,
                      held_keys * depth_, held_keys * depth_, width_, width_});
  queries_ = scratch[0], cotangents_ = scratch[1], query_rows_ = scratch[2], cotangent_rows_ = scratch[3],
  scores_ = scratch[4], products_ = scratch[5], keys_ = scratch[6], dq_ = scratch[7], dk_ = scratch[8],
  dv_ = scratch[9], lse_ = scratch[10], delta_ = scratch[11];
}

void BackwardTile::queries(std::int64_t b, std::int64_t h, std::int64_t q0, bool for_keys, bool for_queries) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  const std::int64_t from = at_.query(b, q0, h);
  const float *q = args_.at(flash::q) + from, *d_o = args_.at(flash::d_o) + from;
  load_transposed(q, at_.q_row, rows_, work_.d, work_.scale, width_, queries_);
  load_transposed(d_o, at_.q_row, rows_, work_.d, 1.0f, width_, cotangents_);
  if (for_keys) {
    pack_b(q, at_.q_row, 1, rows_, work_.d, query_rows_);
    pack_b(d_o, at_.q_row, 1, rows_, work_.d, cotangent_rows_);
  }
  if (for_queries) std::fill_n(dq_, rows_ * depth_, 0.0f);
  // Queries that are padding get probability 0.
  std::fill_n(lse_, width_, kInfinity);
  std::fill_n(delta_, width_, 0.0f);
  const float* o = args_.at(flash::o) + from;
  for (std::int64_t i = 0; i < rows_; ++i) {
    lse_[i] = args_.at(flash::lse)[at_.stat(b, q0 + i, h)];
    delta_[i] = dot_product(o + i * at_.q_row, d_o + i * at_.q_row, work_.d);
  }
}

void BackwardTile::pair(std::int64_t k0, bool masked) {
  k0_ = k0, count_ = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
  const std::int64_t from = at_.key(b_, k0, h_ / work_.group()), panel = micro_tile().columns;
  const AView k = plain_a(args_.at(flash::k) + from, at_.k_row, 1);
  const AView v = plain_a(args_.at(flash::v) + from, at_.k_row, 1);
  cut(work_, q0_, k0, count_, width_, masked, stretches_);
  for (const Stretch& s : stretches_) {
    float *scores = scores_ + s.first, *products = products_ + s.first;
    micro_gemm(s.keys, s.columns, work_.d, k, {queries_ + s.first, width_, panel}, scores, width_, false);
    micro_gemm(s.keys, s.columns, work_.d, v, {cotangents_ + s.first, width_, panel}, products, width_,
               false);
    if (masked) mask_columns(work_, q0_, k0, s, width_, scores_);
    backward_columns(scores, products, s.keys, s.columns, width_, lse_ + s.first, delta_ + s.first);
  }
}

void BackwardTile::add_dq() {
  const std::int64_t from = at_.key(b_, k0_, h_ / work_.group());
  const BView k = pack_b(args_.at(flash::k) + from, at_.k_row, 1, count_, work_.d, keys_);
  for (const Stretch& s : stretches_)
    if (const std::int64_t rows = std::min(s.columns, rows_ - s.first); rows > 0)
      micro_gemm(rows, depth_, s.keys, plain_a(products_ + s.first, 1, width_), k, dq_ + s.first * depth_,
                 depth_, true);
}

void BackwardTile::finish_dq() {
  for (std::int64_t i = 0; i < rows_; ++i)
    scaled_copy(args_.at(flash::dq) + at_.query(b_, q0_ + i, h_), dq_ + i * depth_, work_.d, work_.scale);
}

void BackwardTile::begin_keys(std::int64_t count) {
  std::fill_n(dk_, count * depth_, 0.0f);
  std::fill_n(dv_, count * depth_, 0.0f);
}

void BackwardTile::add_dkv(std::int64_t row) {
  const std::int64_t columns = micro_tile().columns;
  for (const Stretch& s : stretches_) {
    const std::int64_t rows = std::min(s.columns, rows_ - s.first);
    if (rows <= 0) continue;
    const BView q{query_rows_ + s.first * columns, columns, columns * rows_};
    const BView d_o{cotangent_rows_ + s.first * columns, columns, columns * rows_};
    micro_gemm(s.keys, depth_, rows, plain_a(scores_ + s.first, width_, 1), d_o, dv_ + row * depth_, depth_,
               true);
    micro_gemm(s.keys, depth_, rows, plain_a(products_ + s.first, width_, 1), q, dk_ + row * depth_, depth_,
               true);
  }
}

void BackwardTile::finish_keys(std::int64_t b, std::int64_t kv, std::int64_t k0, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t to = at_.key(b, k0 + j, kv);
    scaled_copy(args_.at(flash::dk) + to, dk_ + j * depth_, work_.d, work_.scale);
    scaled_copy(args_.at(flash::dv) + to, dv_ + j * depth_, work_.d, 1.0f);
  }
}

void BackwardTile::finish_head(std::int64_t b, std::int64_t h, std::int64_t count) {
  float* dk = args_.at(flash::partial);
  float* dv = dk + flash_partial_floats(work_);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t to = ((b * work_.t + j) * work_.h + h) * work_.d;
    scaled_copy(dk + to, dk_ + j * depth_, work_.d, work_.scale);
    scaled_copy(dv + to, dv_ + j * depth_, work_.d, 1.0f);
  }
}

}  // namespace meshloom::backends::cpu
