#include "backends/cpu/kernels/flash_attention/flash_attention_streamed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/gemm/matmul_scratch.h"
#include "backends/cpu/kernels/cast.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_vector.h"

namespace meshloom::backends::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Cuts a tile of queries where the mask cuts it, panel by panel, so that a triangle costs little more than
// its area; all rows are one stretch where nothing is masked.
void cut(const kernels::AttentionMask& mask, std::int64_t q0, std::int64_t rows, std::int64_t k0,
         std::int64_t keys, bool masked, std::vector<Stretch>& into) {
  const std::int64_t columns = micro_tile().columns;
  into.clear();
  if (!masked) {
    into.push_back({0, round_up(rows, columns), 0, keys});
    return;
  }
  for (std::int64_t first = 0; first < rows; first += columns) {
    const kernels::Range seen = mask.keys(q0 + first, q0 + std::min(rows, first + columns));
    const std::int64_t skip = std::max<std::int64_t>(0, seen.begin - k0), end = std::min(keys, seen.end - k0);
    if (skip < end) into.push_back({first, columns, skip, end - skip});
  }
}

// The other products of a tile go by parts that the registers like better than panels: `step` rows (or keys)
// at a time with all that the stretches they meet have of the other kind, neighbours with the same as one.
// hull(i, end) gives a Range; f(first, count, Range).
template <typename Hull, typename F>
void parts(std::int64_t count, std::int64_t step, Hull hull, F f) {
  std::int64_t first = 0;
  kernels::Range part{};
  for (std::int64_t i = 0; i < count; i += step) {
    const kernels::Range next = hull(i, std::min(count, i + step));
    if (next.begin == part.begin && next.end == part.end) continue;
    if (part.begin < part.end) f(first, i - first, part);
    first = i, part = next;
  }
  if (part.begin < part.end) f(first, count - first, part);
}

void widen(kernels::Range& hull, std::int64_t begin, std::int64_t end) {
  if (hull.begin == hull.end)
    hull = {begin, end};
  else
    hull = {std::min(hull.begin, begin), std::max(hull.end, end)};
}

// f(first row, rows, the keys they see)
template <typename F>
void by_rows(const std::vector<Stretch>& stretches, std::int64_t rows, std::int64_t step, F f) {
  const auto keys = [&](std::int64_t i, std::int64_t end) {
    kernels::Range hull{};
    for (const Stretch& s : stretches)
      if (s.first < end && s.first + s.columns > i) widen(hull, s.skip, s.skip + s.keys);
    return hull;
  };
  parts(rows, step, keys, f);
}

// f(first key, keys, the rows that see them)
template <typename F>
void by_keys(const std::vector<Stretch>& stretches, std::int64_t rows, std::int64_t keys, std::int64_t step,
             F f) {
  const auto queries = [&](std::int64_t j, std::int64_t end) {
    kernels::Range hull{};
    for (const Stretch& s : stretches)
      if (s.skip < end && s.skip + s.keys > j) widen(hull, s.first, std::min(rows, s.first + s.columns));
    return hull;
  };
  parts(keys, step, queries, f);
}
std::int64_t part_step(const FlashTensors& tensors) {
  return tensors.pairs() ? kTileRows : 2 * micro_tile().rows;
}

// Does a kernel need room for a number per pair?
bool beside(const FlashWork& work) { return work.rng_state != 0 || work.bias != 0; }

// What makes logits of q.k: the scale of pairs, the soft cap, the distance, the bias, the mask. `scores` are
// the stretch's own, as is `beside`, where biases are put.
void modify(const FlashWork& work, const KernelArgs& args, const FlashMasks& masks, std::int64_t b,
            std::int64_t h, std::int64_t q0, std::int64_t rows, std::int64_t k0, const Stretch& s,
            std::int64_t width, bool masked, float* scores, float* steepness, float* beside) {
  const std::int64_t query = q0 + s.first, key = k0 + s.skip, queries = std::min(s.columns, rows - s.first);
  // Pairs come unscaled: bf16 numbers would be rounded.
  if (work.pairs != 0)
    for (std::int64_t j = 0; j < s.keys; ++j)
      scaled_copy(scores + j * width, scores + j * width, s.columns, work.scale);
  if (work.soft_cap > 0) cap_scores(scores, steepness, s.keys, s.columns, width, work.soft_cap);
  if (work.slopes != 0)
    bias_scores(scores, s.keys, s.columns, width, args.at(static_cast<std::size_t>(work.slopes))[h],
                query + masks.mask().offset - key, -1, 1);
  if (const float* bias = flash_bias(work, args, b, h); bias && queries > 0) {
    transpose(bias + query * work.t + key, work.t, queries, s.keys, beside, width);
    add_rows(scores, width, beside, width, s.keys, queries);
  }
  if (masked) masks.hide_by_keys(query, queries, key, s.keys, scores, width);
}

// A view from row `skip` of a packed matrix on.
BView from_row(const BView& b, std::int64_t skip) { return {b.data + skip * b.row, b.row, b.panel}; }

// Is it worth to keep what is made of the keys' tiles, `floats` per key?
bool keeps(const FlashWork& work, std::int64_t floats) {
  constexpr std::int64_t kQueryTiles = 4, kBytes = 16 << 20;
  return std::int64_t{work.s} * work.group() >= kQueryTiles * work.tile_q && work.t * floats * 4 <= kBytes;
}

// Rows of d floats, `stride` apart, as the left side of a product: copied side by side where they are kept,
// so that they share no sets of the caches; else where they lie.
AView rows_of(HeldTiles& tiles, std::int64_t index, const float* from, std::int64_t stride, std::int64_t rows,
              std::int64_t d) {
  if (!tiles.kept()) return plain_a(from, stride, 1);
  const float* copied = tiles.tile(index, [&](float* into) {
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from + i * stride, d, into + i * d);
  });
  return plain_a(copied, d, 1);
}
// The same as panels, the right side of a product.
BView panels_of(const FlashTensors& tensors, HeldTiles& tiles, std::int64_t index, const float* from,
                std::int64_t stride, std::int64_t rows, std::int64_t d) {
  const std::int64_t columns = micro_tile().columns;
  const float* packed = tiles.tile(index, [&](float* into) { tensors.panels(from, stride, rows, d, into); });
  return {packed, columns, columns * tensors.steps(rows)};
}
AView from_row(const AView& a, std::int64_t skip) { return plain_a(a.data + skip * a.row, a.row, a.col); }

// (rows, d) -> (d, width), scaled, columns beyond `rows` zero.
void load_transposed(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d, float scale,
                     std::int64_t width, float* into) {
  transpose(from, stride, rows, d, into, width);
  for (std::int64_t e = 0; e < d; ++e) {
    if (scale != 1.0f) scaled_copy(into + e * width, into + e * width, rows, scale);
    std::fill(into + e * width + rows, into + (e + 1) * width, 0.0f);
  }
}

// sums (queries x features, `depth` apart) += tile (keys x queries) turned . panels (keys x features), part
// by part.
void add_by_rows(const FlashTensors& tensors, const std::vector<Stretch>& stretches, std::int64_t rows,
                 const float* tile, std::int64_t width, const SplitTile& split, const BView& panels,
                 float* sums, std::int64_t depth) {
  by_rows(stretches, rows, part_step(tensors),
          [&](std::int64_t row, std::int64_t count, const kernels::Range& seen) {
            // What pairs add of a key before the first is zero.
            const std::int64_t first = tensors.words(seen.begin), steps = tensors.steps(seen.end) - first;
            const auto add = [&](const AView& left) {
              micro_gemm(count, depth, steps, left, from_row(panels, first), sums + row * depth, depth, true,
                         tensors.factors());
            };
            if (!tensors.pairs()) return add(plain_a(tile + seen.begin * width + row, 1, width));
            for (int part = 0; part < SplitTile::kParts; ++part) add(split.by_query(part, row, seen.begin));
          });
}

}  // namespace

BView FlashTensors::panels(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d,
                           float* into) const {
  return pairs_ ? pack_pairs(reinterpret_cast<const std::uint16_t*>(from), stride, rows, d, into)
                : pack_b(from, stride, 1, rows, d, into);
}

void FlashTensors::store(flash::Binding binding, std::int64_t element, float* sums, std::int64_t d,
                         float factor) const {
  if (!pairs_) return scaled_copy(args_.at(binding) + element, sums, d, factor);
  scaled_copy(sums, sums, d, factor);
  narrow(sums, d, hal::DType::bf16, args_.at<std::uint16_t>(binding) + element);
}

float FlashTensors::dot(const float* a, const float* b, std::int64_t d, float* row) const {
  if (!pairs_) return dot_product(a, b, d);
  widen(a, hal::DType::bf16, d, row);
  widen(b, hal::DType::bf16, d, row + d);
  return dot_product(row, row + d, d);
}

std::int64_t SplitTile::floats(const FlashWork& work) {
  return work.pairs == 0 ? 0
                         : kParts * (work.tile_k * spread_row(div_up(work.tile_q, 2)) +
                                     work.tile_q * spread_row(div_up(work.tile_k, 2)));
}

void SplitTile::hold(const FlashWork& work, float* memory) {
  row_ = spread_row(div_up(work.tile_q, 2)), turned_row_ = spread_row(div_up(work.tile_k, 2));
  for (int part = 0; part < kParts; ++part) {
    rows_[part] = memory, turned_[part] = memory + work.tile_k * row_;
    memory = turned_[part] + work.tile_q * turned_row_;
  }
}

void SplitTile::take(const float* tile, std::int64_t stride, std::int64_t keys, std::int64_t queries) {
  keys_ = keys, queries_ = queries;
  for (std::int64_t j = 0; j < keys; ++j)
    split_bf16(tile + j * stride, round_up(queries, 2), reinterpret_cast<std::uint16_t*>(rows_[0] + j * row_),
               reinterpret_cast<std::uint16_t*>(rows_[1] + j * row_));
}

void SplitTile::turn() {
  for (int part = 0; part < kParts; ++part)
    turn_pairs(reinterpret_cast<const std::uint16_t*>(rows_[part]), 2 * row_, keys_, queries_, turned_[part],
               turned_row_);
}

AView SplitTile::by_key(int part, std::int64_t key, std::int64_t query) const {
  return plain_a(rows_[part] + key * row_ + query / 2, row_, 1);
}
AView SplitTile::by_query(int part, std::int64_t query, std::int64_t key) const {
  return plain_a(turned_[part] + query * turned_row_ + key / 2, turned_row_, 1);
}

ForwardTile::ForwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks)
    : work_(work),
      args_(args),
      tensors_(work, args),
      masks_(masks),
      at_(work),
      width_(spread_row(round_up(work.tile_q, micro_tile().columns))),
      depth_(round_up(work.dv, micro_tile().columns)) {
  const bool kept = keeps(work, work.d + depth_);
  const std::int64_t tiles = work.tiles_k(), keys = work.tile_k * work.d, values = work.tile_k * depth_;
  const auto scratch =
      thread_scratch({work.d * width_, work.tile_k * width_, HeldTiles::floats(kept, tiles, values),
                      work.tile_q * depth_, width_, width_, width_, beside(work) ? work.tile_k * width_ : 0,
                      kept ? tiles * keys : 0, SplitTile::floats(work)});
  split_scores_.hold(work, scratch[9]);
  queries_ = scratch[0], scores_ = scratch[1], sums_ = scratch[3], largest_ = scratch[4], total_ = scratch[5],
  shrink_ = scratch[6], beside_ = scratch[7];
  values_.hold(scratch[2], kept, tiles, values);
  keys_.hold(scratch[8], kept, tiles, keys);
  if (work.rng_state != 0) dropout_ = flash_dropout(work, args);
}

void ForwardTile::begin(std::int64_t b, std::int64_t h, std::int64_t q0) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  masks_.head(b, h);
  keys_.head(b * work_.kv + h / work_.group());
  values_.head(b * work_.kv + h / work_.group());
  load_transposed(tensors_.at(flash::q, at_.query(b, q0, h)), tensors_.words(at_.q_row), rows_,
                  tensors_.words(work_.d), tensors_.pairs() ? 1.0f : work_.scale, width_, queries_);
  std::fill_n(sums_, rows_ * depth_, 0.0f);
  // A sink is a first logit without a value.
  const bool sink = work_.sink != 0;
  std::fill_n(largest_, width_, sink ? args_.at(static_cast<std::size_t>(work_.sink))[h] : -kInfinity);
  std::fill_n(total_, width_, sink ? 1.0f : 0.0f);
}

void ForwardTile::keys(std::int64_t k0, bool masked) {
  const std::int64_t count = std::min<std::int64_t>(work_.tile_k, work_.t - k0), kv = h_ / work_.group();
  const std::int64_t index = k0 / work_.tile_k;
  const AView k = rows_of(keys_, index, tensors_.at(flash::k, at_.key(b_, k0, kv)), tensors_.words(at_.k_row),
                          count, tensors_.words(work_.d));
  const BView v = panels_of(tensors_, values_, index, tensors_.at(flash::v, at_.value(b_, k0, kv)), at_.v_row,
                            count, work_.dv);
  cut(masks_.mask(), q0_, rows_, k0, count, masked, stretches_);
  if (masked) std::fill_n(scores_, count * width_, 0.0f);
  for (const Stretch& s : stretches_) {
    const BView q{queries_ + s.first, width_, micro_tile().columns};
    float* scores = scores_ + s.skip * width_ + s.first;
    micro_gemm(s.keys, s.columns, tensors_.words(work_.d), from_row(k, s.skip), q, scores, width_, false,
               tensors_.factors());
    modify(work_, args_, masks_, b_, h_, q0_, rows_, k0, s, width_, masked, scores, nullptr, beside_);
    softmax_columns(scores, s.keys, s.columns, width_, largest_ + s.first, total_ + s.first,
                    shrink_ + s.first);
    if (work_.rng_state != 0) {
      dropout_columns(dropout_, b_, h_, q0_ + s.first, s.columns, k0 + s.skip, s.keys, beside_, width_);
      multiply_rows(scores, beside_, s.keys, s.columns, width_);
    }
    scale_rows(sums_ + s.first * depth_, std::min(s.columns, rows_ - s.first), depth_, depth_,
               shrink_ + s.first);
  }
  if (tensors_.pairs()) {
    split_scores_.take(scores_, width_, count, rows_);
    split_scores_.turn();
  }
  add_by_rows(tensors_, stretches_, rows_, scores_, width_, split_scores_, v, sums_, depth_);
}

void ForwardTile::finish() {
  for (std::int64_t i = 0; i < rows_; ++i) {
    // The exponentials of hidden scores are tiny, not 0: a row of nothing else has no largest.
    const bool any = largest_[i] > -kInfinity;
    tensors_.store(flash::o, at_.output(b_, q0_ + i, h_), sums_ + i * depth_, work_.dv,
                   any ? 1.0f / total_[i] : 0.0f);
    args_.at(flash::lse)[at_.stat(b_, q0_ + i, h_)] = any ? largest_[i] + std::log(total_[i]) : -kInfinity;
  }
}

BackwardTile::BackwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks,
                           std::int64_t held_keys)
    : work_(work),
      args_(args),
      tensors_(work, args),
      masks_(masks),
      at_(work),
      width_(spread_row(round_up(work.tile_q, micro_tile().columns))),
      depth_(round_up(work.d, micro_tile().columns)),
      depth_v_(round_up(work.dv, micro_tile().columns)) {
  const std::int64_t tile = work.tile_k * width_, tiles = work.tiles_k();
  const std::int64_t keys = work.tile_k * work.d, values = work.tile_k * work.dv,
                     panels = work.tile_k * depth_;
  const bool kept = keeps(work, work.d + work.dv + depth_);
  const auto scratch =
      thread_scratch({work.d * width_, work.dv * width_, work.tile_q * depth_, work.tile_q * depth_v_, tile,
                      tile, work.soft_cap > 0 ? tile : 0, HeldTiles::floats(kept, tiles, panels),
                      work.tile_q * depth_, held_keys * depth_, held_keys * depth_v_, width_, width_,
                      beside(work) ? tile : 0, kept ? tiles * keys : 0, kept ? tiles * values : 0,
                      SplitTile::floats(work), SplitTile::floats(work), work.pairs ? 2 * work.dv : 0});
  split_scores_.hold(work, scratch[16]);
  split_products_.hold(work, scratch[17]);
  row_ = scratch[18];
  queries_ = scratch[0], cotangents_ = scratch[1], query_rows_ = scratch[2], cotangent_rows_ = scratch[3],
  scores_ = scratch[4], products_ = scratch[5], steepness_ = scratch[6], dq_ = scratch[8], dk_ = scratch[9],
  dv_ = scratch[10], lse_ = scratch[11], delta_ = scratch[12], beside_ = scratch[13];
  key_panels_.hold(scratch[7], kept, tiles, panels);
  keys_.hold(scratch[14], kept, tiles, keys);
  values_.hold(scratch[15], kept, tiles, values);
  if (work.rng_state != 0) dropout_ = flash_dropout(work, args);
}

void BackwardTile::queries(std::int64_t b, std::int64_t h, std::int64_t q0, bool for_keys, bool for_queries) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  masks_.head(b, h);
  for (HeldTiles* held : {&keys_, &values_, &key_panels_}) held->head(b * work_.kv + h / work_.group());
  const float* q = tensors_.at(flash::q, at_.query(b, q0, h));
  const float *o = tensors_.at(flash::o, at_.output(b, q0, h)),
              *d_o = tensors_.at(flash::d_o, at_.output(b, q0, h));
  const std::int64_t o_row = tensors_.words(at_.o_row);
  load_transposed(q, tensors_.words(at_.q_row), rows_, tensors_.words(work_.d),
                  tensors_.pairs() ? 1.0f : work_.scale, width_, queries_);
  load_transposed(d_o, o_row, rows_, tensors_.words(work_.dv), 1.0f, width_, cotangents_);
  if (for_keys) {
    tensors_.panels(q, at_.q_row, rows_, work_.d, query_rows_);
    tensors_.panels(d_o, at_.o_row, rows_, work_.dv, cotangent_rows_);
  }
  if (for_queries) std::fill_n(dq_, rows_ * depth_, 0.0f);
  // Queries that are padding, or that see nothing, get probability 0.
  std::fill_n(lse_, width_, kInfinity);
  std::fill_n(delta_, width_, 0.0f);
  for (std::int64_t i = 0; i < rows_; ++i) {
    const float lse = args_.at(flash::lse)[at_.stat(b, q0 + i, h)];
    if (lse > -kInfinity) lse_[i] = lse;
    delta_[i] = tensors_.dot(o + i * o_row, d_o + i * o_row, work_.dv, row_);
  }
}

void BackwardTile::pair(std::int64_t k0, bool masked, bool logits) {
  k0_ = k0, count_ = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
  const std::int64_t kv = h_ / work_.group(), panel = micro_tile().columns;
  const std::int64_t index = k0 / work_.tile_k;
  const std::int64_t d = tensors_.words(work_.d), dv = tensors_.words(work_.dv);
  const AView k =
      rows_of(keys_, index, tensors_.at(flash::k, at_.key(b_, k0, kv)), tensors_.words(at_.k_row), count_, d);
  const AView v = rows_of(values_, index, tensors_.at(flash::v, at_.value(b_, k0, kv)),
                          tensors_.words(at_.v_row), count_, dv);
  cut(masks_.mask(), q0_, rows_, k0, count_, masked, stretches_);
  if (masked)
    for (float* pairs : {scores_, products_}) std::fill_n(pairs, count_ * width_, 0.0f);
  for (const Stretch& s : stretches_) {
    const std::int64_t at = s.skip * width_ + s.first;
    float *scores = scores_ + at, *products = products_ + at;
    micro_gemm(s.keys, s.columns, d, from_row(k, s.skip), {queries_ + s.first, width_, panel}, scores, width_,
               false, tensors_.factors());
    micro_gemm(s.keys, s.columns, dv, from_row(v, s.skip), {cotangents_ + s.first, width_, panel}, products,
               width_, false, tensors_.factors());
    modify(work_, args_, masks_, b_, h_, q0_, rows_, k0, s, width_, masked, scores, steepness_ + at, beside_);
    if (work_.rng_state != 0) {
      dropout_columns(dropout_, b_, h_, q0_ + s.first, s.columns, k0 + s.skip, s.keys, beside_, width_);
      multiply_rows(products, beside_, s.keys, s.columns, width_);
    }
    backward_columns(scores, products, s.keys, s.columns, width_, lse_ + s.first, delta_ + s.first);
    if (logits) continue;
    if (work_.soft_cap > 0) multiply_rows(products, steepness_ + at, s.keys, s.columns, width_);
    if (work_.rng_state != 0) multiply_rows(scores, beside_, s.keys, s.columns, width_);
  }
  if (tensors_.pairs()) split_products_.take(products_, width_, count_, rows_);
}

void BackwardTile::add_dq() {
  const BView k =
      panels_of(tensors_, key_panels_, k0_ / work_.tile_k,
                tensors_.at(flash::k, at_.key(b_, k0_, h_ / work_.group())), at_.k_row, count_, work_.d);
  if (tensors_.pairs()) split_products_.turn();
  add_by_rows(tensors_, stretches_, rows_, products_, width_, split_products_, k, dq_, depth_);
}

void BackwardTile::add_dbias(float* into) {
  for (const Stretch& s : stretches_) {
    const std::int64_t rows = std::min(s.columns, rows_ - s.first);
    if (rows <= 0) continue;
    // Probabilities have done their work.
    transpose(products_ + s.skip * width_ + s.first, width_, s.keys, rows, scores_, work_.tile_k);
    add_rows(into + s.first * work_.t + s.skip, work_.t, scores_, work_.tile_k, rows, s.keys);
  }
}

void BackwardTile::finish_dq() {
  for (std::int64_t i = 0; i < rows_; ++i)
    tensors_.store(flash::dq, at_.query(b_, q0_ + i, h_), dq_ + i * depth_, work_.d, work_.scale);
}

void BackwardTile::begin_keys(std::int64_t count) {
  std::fill_n(dk_, count * depth_, 0.0f);
  std::fill_n(dv_, count * depth_v_, 0.0f);
}

void BackwardTile::add_dkv(std::int64_t row) {
  if (tensors_.pairs()) split_scores_.take(scores_, width_, count_, rows_);
  const std::int64_t columns = micro_tile().columns;
  const auto add = [&](std::int64_t key, std::int64_t keys, const kernels::Range& seeing) {
    // Stretches begin with a panel, so with an even query.
    const std::int64_t first = tensors_.words(seeing.begin),
                       steps = tensors_.steps(seeing.end - seeing.begin), at = key * width_ + seeing.begin,
                       all = columns * tensors_.steps(rows_);
    const auto sum = [&](const float* wide, const SplitTile& split, const float* panels, float* sums,
                         std::int64_t depth) {
      const auto product = [&](const AView& left) {
        micro_gemm(keys, depth, steps, left, {panels + first * columns, columns, all},
                   sums + (row + key) * depth, depth, true, tensors_.factors());
      };
      if (!tensors_.pairs()) return product(plain_a(wide + at, width_, 1));
      for (int part = 0; part < SplitTile::kParts; ++part) product(split.by_key(part, key, seeing.begin));
    };
    sum(scores_, split_scores_, cotangent_rows_, dv_, depth_v_);
    sum(products_, split_products_, query_rows_, dk_, depth_);
  };
  by_keys(stretches_, rows_, count_, part_step(tensors_), add);
}

void BackwardTile::finish_keys(std::int64_t b, std::int64_t kv, std::int64_t k0, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) {
    tensors_.store(flash::dk, at_.key(b, k0 + j, kv), dk_ + j * depth_, work_.d, work_.scale);
    tensors_.store(flash::dv, at_.value(b, k0 + j, kv), dv_ + j * depth_v_, work_.dv, 1.0f);
  }
}

void BackwardTile::finish_head(std::int64_t b, std::int64_t h, std::int64_t count) {
  float* dk = args_.at(static_cast<std::size_t>(work_.partial));
  float* dv = dk + flash_partial_dk(work_);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t to = (b * work_.t + j) * work_.h + h;
    scaled_copy(dk + to * work_.d, dk_ + j * depth_, work_.d, work_.scale);
    scaled_copy(dv + to * work_.dv, dv_ + j * depth_v_, work_.dv, 1.0f);
  }
}

}  // namespace meshloom::backends::cpu
