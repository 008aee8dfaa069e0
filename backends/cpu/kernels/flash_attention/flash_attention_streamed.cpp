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

// The visible blocks of a tile, one per panel of queries, so that a triangular mask costs little more than its area;
// a single block where nothing is masked.
void find_visible_blocks(const kernels::AttentionMask& mask, std::int64_t q0, std::int64_t rows,
                         std::int64_t k0, std::int64_t keys, bool masked, std::vector<VisibleBlock>& into) {
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

// Cuts [0, count) into chunks of `step` rows (or keys), finds with hull(i, end) the range of keys (or rows) that a
// chunk needs, joins neighbours that need the same range, and calls f(first, count, range) for each.
template <typename Hull, typename F>
void each_chunk(std::int64_t count, std::int64_t step, Hull hull, F f) {
  std::int64_t first = 0;
  kernels::Range range{};
  for (std::int64_t i = 0; i < count; i += step) {
    const kernels::Range next = hull(i, std::min(count, i + step));
    if (next.begin == range.begin && next.end == range.end) continue;
    if (range.begin < range.end) f(first, i - first, range);
    first = i, range = next;
  }
  if (range.begin < range.end) f(first, count - first, range);
}

// Makes the hull include [begin, end).
void expand(kernels::Range& hull, std::int64_t begin, std::int64_t end) {
  if (hull.begin == hull.end)
    hull = {begin, end};
  else
    hull = {std::min(hull.begin, begin), std::max(hull.end, end)};
}

// Calls f(first row, rows, range of the keys that they see).
template <typename F>
void each_row_chunk(const std::vector<VisibleBlock>& blocks, std::int64_t rows, std::int64_t step, F f) {
  const auto keys = [&](std::int64_t i, std::int64_t end) {
    kernels::Range hull{};
    for (const VisibleBlock& block : blocks)
      if (block.first_query < end && block.first_query + block.queries > i)
        expand(hull, block.first_key, block.first_key + block.keys);
    return hull;
  };
  each_chunk(rows, step, keys, f);
}

// Calls f(first key, keys, range of the rows that see them).
template <typename F>
void each_key_chunk(const std::vector<VisibleBlock>& blocks, std::int64_t rows, std::int64_t keys,
                    std::int64_t step, F f) {
  const auto queries = [&](std::int64_t j, std::int64_t end) {
    kernels::Range hull{};
    for (const VisibleBlock& block : blocks)
      if (block.first_key < end && block.first_key + block.keys > j)
        expand(hull, block.first_query, std::min(rows, block.first_query + block.queries));
    return hull;
  };
  each_chunk(keys, step, queries, f);
}

// Rows (or keys) of a chunk: what the inner loop multiplies at a time, which is finer than a panel.
std::int64_t chunk_step(const FlashTensors& tensors) {
  return tensors.bf16_pairs() ? kAmxStripRows : 2 * micro_tile().rows;
}

// True where a kernel needs score_aux_.
bool needs_score_aux(const FlashWork& work) { return work.rng_state != 0 || work.bias != 0; }

// The scores (keys x queries, rows `width` apart) of one visible block.
struct ScoreBlock {
  const VisibleBlock& block;
  std::int64_t b, h, q0, rows, k0;  // batch row, head, query tile and its rows, key tile
  std::int64_t width;
  bool masked;          // some score must be masked
  float* scores;        // of the block's first query and key
  float* softcap_grad;  // gets the gradient of the soft cap; laid out like scores, or null
  float* aux;           // room for the biases; laid out like scores
};

// Turns q.k into logits: scale (of bf16 pairs), soft cap, ALiBi, bias, mask.
void apply_score_mods(const FlashWork& work, const KernelArgs& args, const FlashMasks& masks,
                      const ScoreBlock& s) {
  const VisibleBlock& block = s.block;
  const std::int64_t query = s.q0 + block.first_query, key = s.k0 + block.first_key,
                     queries = std::min(block.queries, s.rows - block.first_query);
  // Queries in bf16 pairs are not scaled before the product, which would round them.
  if (work.bf16_pairs != 0)
    for (std::int64_t j = 0; j < block.keys; ++j)
      scaled_copy(s.scores + j * s.width, s.scores + j * s.width, block.queries, work.scale);
  if (work.soft_cap > 0)
    cap_scores(s.scores, s.softcap_grad, block.keys, block.queries, s.width, work.soft_cap);
  if (work.slopes != 0)
    bias_scores(s.scores, block.keys, block.queries, s.width,
                args.at(static_cast<std::size_t>(work.slopes))[s.h], query + masks.mask().offset - key, -1,
                1);
  if (const float* bias = flash_bias(work, args, s.b, s.h); bias && queries > 0) {
    transpose(bias + query * work.t + key, work.t, queries, block.keys, s.aux, s.width);
    add_rows(s.scores, s.width, s.aux, s.width, block.keys, queries);
  }
  if (s.masked) masks.mask_by_keys(query, queries, key, block.keys, s.scores, s.width);
}

// A view of a packed matrix from row `first` on.
BView from_row(const BView& b, std::int64_t first) { return {b.data + first * b.row, b.row, b.panel}; }

// True where packed tiles of keys, of `floats` floats per key, are worth caching: enough query tiles read them, and
// they fit the memory set aside.
bool caches_tiles(const FlashWork& work, std::int64_t floats) {
  constexpr std::int64_t kQueryTiles = 4, kBytes = 16 << 20;
  return std::int64_t{work.s} * work.group() >= kQueryTiles * work.tile_q && work.t * floats * 4 <= kBytes;
}

// Rows of d floats, `stride` apart, as the left side of a product. Cached rows are copied densely, so that they do not
// compete for sets of the processor's caches; others are read in place.
AView rows_of(TileCache& tiles, std::int64_t index, const float* from, std::int64_t stride, std::int64_t rows,
              std::int64_t d) {
  if (!tiles.cached()) return plain_a(from, stride, 1);
  const float* copied = tiles.tile(index, [&](float* into) {
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(from + i * stride, d, into + i * d);
  });
  return plain_a(copied, d, 1);
}
// Rows of d features as panels, the right side of a product.
BView panels_of(const FlashTensors& tensors, TileCache& tiles, std::int64_t index, const float* from,
                std::int64_t stride, std::int64_t rows, std::int64_t d) {
  const std::int64_t columns = micro_tile().columns;
  const float* packed = tiles.tile(index, [&](float* into) { tensors.panels(from, stride, rows, d, into); });
  return {packed, columns, columns * tensors.steps(rows)};
}
AView from_row(const AView& a, std::int64_t first) { return plain_a(a.data + first * a.row, a.row, a.col); }

// Writes (rows, d) as (d, width), scaled; columns beyond `rows` are zero.
void load_transposed(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d, float scale,
                     std::int64_t width, float* into) {
  transpose(from, stride, rows, d, into, width);
  for (std::int64_t e = 0; e < d; ++e) {
    if (scale != 1.0f) scaled_copy(into + e * width, into + e * width, rows, scale);
    std::fill(into + e * width + rows, into + (e + 1) * width, 0.0f);
  }
}

// sums (queries x features, rows `depth` apart) += transposed tile (keys x queries) . panels (keys x features).
void add_transposed_product(const FlashTensors& tensors, const std::vector<VisibleBlock>& blocks,
                            std::int64_t rows, const float* tile, std::int64_t width,
                            const SplitBf16Tile& split, const BView& panels, float* sums,
                            std::int64_t depth) {
  each_row_chunk(blocks, rows, chunk_step(tensors),
                 [&](std::int64_t row, std::int64_t count, const kernels::Range& seen) {
                   // A pair may include the key before the first, whose score is zero.
                   const std::int64_t first = tensors.words(seen.begin),
                                      steps = tensors.steps(seen.end) - first;
                   const auto add = [&](const AView& left) {
                     micro_gemm(count, depth, steps, left, from_row(panels, first), sums + row * depth, depth,
                                true, tensors.operand_type());
                   };
                   if (!tensors.bf16_pairs()) return add(plain_a(tile + seen.begin * width + row, 1, width));
                   for (int part = 0; part < SplitBf16Tile::kParts; ++part)
                     add(split.by_query(part, row, seen.begin));
                 });
}

}  // namespace

BView FlashTensors::panels(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t d,
                           float* into) const {
  return bf16_pairs_ ? pack_pairs(reinterpret_cast<const std::uint16_t*>(from), stride, rows, d, into)
                     : pack_b(from, stride, 1, rows, d, into);
}

void FlashTensors::store(flash::Binding binding, std::int64_t element, float* sums, std::int64_t d,
                         float factor) const {
  if (!bf16_pairs_) return scaled_copy(args_.at(binding) + element, sums, d, factor);
  scaled_copy(sums, sums, d, factor);
  narrow(sums, d, hal::DType::bf16, args_.at<std::uint16_t>(binding) + element);
}

float FlashTensors::dot(const float* a, const float* b, std::int64_t d, float* scratch) const {
  if (!bf16_pairs_) return dot_product(a, b, d);
  widen(a, hal::DType::bf16, d, scratch);
  widen(b, hal::DType::bf16, d, scratch + d);
  return dot_product(scratch, scratch + d, d);
}

std::int64_t SplitBf16Tile::floats(const FlashWork& work) {
  return work.bf16_pairs == 0 ? 0
                              : kParts * (work.tile_k * padded_stride(ceil_div(work.tile_q, 2)) +
                                          work.tile_q * padded_stride(ceil_div(work.tile_k, 2)));
}

void SplitBf16Tile::use_memory(const FlashWork& work, float* memory) {
  row_ = padded_stride(ceil_div(work.tile_q, 2)), transposed_row_ = padded_stride(ceil_div(work.tile_k, 2));
  for (int part = 0; part < kParts; ++part) {
    rows_[part] = memory, transposed_[part] = memory + work.tile_k * row_;
    memory = transposed_[part] + work.tile_q * transposed_row_;
  }
}

void SplitBf16Tile::split(const float* tile, std::int64_t stride, std::int64_t keys, std::int64_t queries) {
  keys_ = keys, queries_ = queries;
  for (std::int64_t j = 0; j < keys; ++j)
    split_bf16(tile + j * stride, round_up(queries, 2), reinterpret_cast<std::uint16_t*>(rows_[0] + j * row_),
               reinterpret_cast<std::uint16_t*>(rows_[1] + j * row_));
}

void SplitBf16Tile::transpose_parts() {
  for (int part = 0; part < kParts; ++part)
    transpose_pairs(reinterpret_cast<const std::uint16_t*>(rows_[part]), 2 * row_, keys_, queries_,
                    transposed_[part], transposed_row_);
}

AView SplitBf16Tile::by_key(int part, std::int64_t key, std::int64_t query) const {
  return plain_a(rows_[part] + key * row_ + query / 2, row_, 1);
}
AView SplitBf16Tile::by_query(int part, std::int64_t query, std::int64_t key) const {
  return plain_a(transposed_[part] + query * transposed_row_ + key / 2, transposed_row_, 1);
}

ForwardTile::ForwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks)
    : work_(work),
      args_(args),
      tensors_(work, args),
      masks_(masks),
      at_(work),
      width_(padded_stride(round_up(work.tile_q, micro_tile().columns))),
      depth_(round_up(work.dv, micro_tile().columns)) {
  const bool cached = caches_tiles(work, work.d + depth_);
  const std::int64_t tiles = work.tiles_k(), keys = work.tile_k * work.d, values = work.tile_k * depth_;
  enum class Slot { queries, scores, values, sums, row_max, row_sum, rescale, score_aux, keys, split, count };
  ScratchSlots<Slot> scratch;
  scratch.floats(Slot::queries) = work.d * width_;
  scratch.floats(Slot::scores) = work.tile_k * width_;
  scratch.floats(Slot::values) = TileCache::floats(cached, tiles, values);
  scratch.floats(Slot::sums) = work.tile_q * depth_;
  for (const Slot slot : {Slot::row_max, Slot::row_sum, Slot::rescale}) scratch.floats(slot) = width_;
  scratch.floats(Slot::score_aux) = needs_score_aux(work) ? work.tile_k * width_ : 0;
  scratch.floats(Slot::keys) = cached ? tiles * keys : 0;
  scratch.floats(Slot::split) = SplitBf16Tile::floats(work);
  scratch.cut();
  queries_ = scratch[Slot::queries];
  scores_ = scratch[Slot::scores];
  sums_ = scratch[Slot::sums];
  row_max_ = scratch[Slot::row_max];
  row_sum_ = scratch[Slot::row_sum];
  rescale_ = scratch[Slot::rescale];
  score_aux_ = scratch[Slot::score_aux];
  split_scores_.use_memory(work, scratch[Slot::split]);
  values_.use_memory(scratch[Slot::values], cached, tiles, values);
  keys_.use_memory(scratch[Slot::keys], cached, tiles, keys);
  if (work.rng_state != 0) dropout_ = flash_dropout(work, args);
}

void ForwardTile::begin(std::int64_t b, std::int64_t h, std::int64_t q0) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  masks_.head(b, h);
  keys_.set_head(b * work_.kv + h / work_.group());
  values_.set_head(b * work_.kv + h / work_.group());
  load_transposed(tensors_.at(flash::q, at_.query(b, q0, h)), tensors_.words(at_.q_row), rows_,
                  tensors_.words(work_.d), tensors_.bf16_pairs() ? 1.0f : work_.scale, width_, queries_);
  std::fill_n(sums_, rows_ * depth_, 0.0f);
  // A sink is a first logit without a value.
  const bool sink = work_.sink != 0;
  std::fill_n(row_max_, width_, sink ? args_.at(static_cast<std::size_t>(work_.sink))[h] : -kInfinity);
  std::fill_n(row_sum_, width_, sink ? 1.0f : 0.0f);
}

void ForwardTile::key_tile(std::int64_t k0, bool masked) {
  const std::int64_t count = std::min<std::int64_t>(work_.tile_k, work_.t - k0), kv = h_ / work_.group();
  const std::int64_t index = k0 / work_.tile_k;
  const AView k = rows_of(keys_, index, tensors_.at(flash::k, at_.key(b_, k0, kv)), tensors_.words(at_.k_row),
                          count, tensors_.words(work_.d));
  const BView v = panels_of(tensors_, values_, index, tensors_.at(flash::v, at_.value(b_, k0, kv)), at_.v_row,
                            count, work_.dv);
  find_visible_blocks(masks_.mask(), q0_, rows_, k0, count, masked, blocks_);
  if (masked) std::fill_n(scores_, count * width_, 0.0f);
  for (const VisibleBlock& block : blocks_) {
    const std::int64_t query = block.first_query, queries = block.queries, keys = block.keys;
    const BView q{queries_ + query, width_, micro_tile().columns};
    float* scores = scores_ + block.first_key * width_ + query;
    micro_gemm(keys, queries, tensors_.words(work_.d), from_row(k, block.first_key), q, scores, width_, false,
               tensors_.operand_type());
    apply_score_mods(work_, args_, masks_,
                     {block, b_, h_, q0_, rows_, k0, width_, masked, scores, nullptr, score_aux_});
    softmax_columns(scores, keys, queries, width_, block.first_key, row_max_ + query, row_sum_ + query,
                    rescale_ + query);
    if (work_.rng_state != 0) {
      dropout_columns(dropout_, b_, h_, q0_ + query, queries, k0 + block.first_key, keys, score_aux_, width_);
      multiply_rows(scores, score_aux_, keys, queries, width_);
    }
    scale_rows(sums_ + query * depth_, std::min(queries, rows_ - query), depth_, depth_, rescale_ + query);
  }
  if (tensors_.bf16_pairs()) {
    split_scores_.split(scores_, width_, count, rows_);
    split_scores_.transpose_parts();
  }
  add_transposed_product(tensors_, blocks_, rows_, scores_, width_, split_scores_, v, sums_, depth_);
}

void ForwardTile::finish() {
  for (std::int64_t i = 0; i < rows_; ++i) {
    const bool any = row_max_[i] > -kInfinity;
    tensors_.store(flash::o, at_.output(b_, q0_ + i, h_), sums_ + i * depth_, work_.dv,
                   any ? 1.0f / row_sum_[i] : 0.0f);
    args_.at(flash::lse)[at_.stat(b_, q0_ + i, h_)] = any ? row_max_[i] + std::log(row_sum_[i]) : -kInfinity;
  }
}

BackwardTile::BackwardTile(const FlashWork& work, const KernelArgs& args, FlashMasks& masks,
                           std::int64_t accumulator_rows)
    : work_(work),
      args_(args),
      tensors_(work, args),
      masks_(masks),
      at_(work),
      width_(padded_stride(round_up(work.tile_q, micro_tile().columns))),
      depth_(round_up(work.d, micro_tile().columns)),
      depth_v_(round_up(work.dv, micro_tile().columns)) {
  const std::int64_t tile = work.tile_k * width_, tiles = work.tiles_k();
  const std::int64_t keys = work.tile_k * work.d, values = work.tile_k * work.dv,
                     panels = work.tile_k * depth_;
  const bool cached = caches_tiles(work, work.d + work.dv + depth_);
  enum class Slot {
    queries,
    cotangents,
    query_rows,
    cotangent_rows,
    scores,
    products,
    softcap_grad,
    key_panels,
    dq,
    dk,
    dv,
    lse,
    delta,
    score_aux,
    keys,
    values,
    split_scores,
    split_products,
    dot,
    count
  };
  ScratchSlots<Slot> scratch;
  scratch.floats(Slot::queries) = work.d * width_;
  scratch.floats(Slot::cotangents) = work.dv * width_;
  scratch.floats(Slot::query_rows) = work.tile_q * depth_;
  scratch.floats(Slot::cotangent_rows) = work.tile_q * depth_v_;
  scratch.floats(Slot::scores) = scratch.floats(Slot::products) = tile;
  scratch.floats(Slot::softcap_grad) = work.soft_cap > 0 ? tile : 0;
  scratch.floats(Slot::key_panels) = TileCache::floats(cached, tiles, panels);
  scratch.floats(Slot::dq) = work.tile_q * depth_;
  scratch.floats(Slot::dk) = accumulator_rows * depth_;
  scratch.floats(Slot::dv) = accumulator_rows * depth_v_;
  scratch.floats(Slot::lse) = scratch.floats(Slot::delta) = width_;
  scratch.floats(Slot::score_aux) = needs_score_aux(work) ? tile : 0;
  scratch.floats(Slot::keys) = cached ? tiles * keys : 0;
  scratch.floats(Slot::values) = cached ? tiles * values : 0;
  scratch.floats(Slot::split_scores) = scratch.floats(Slot::split_products) = SplitBf16Tile::floats(work);
  scratch.floats(Slot::dot) = work.bf16_pairs ? 2 * work.dv : 0;
  scratch.cut();
  queries_ = scratch[Slot::queries];
  cotangents_ = scratch[Slot::cotangents];
  query_rows_ = scratch[Slot::query_rows];
  cotangent_rows_ = scratch[Slot::cotangent_rows];
  scores_ = scratch[Slot::scores];
  products_ = scratch[Slot::products];
  softcap_grad_ = scratch[Slot::softcap_grad];
  dq_ = scratch[Slot::dq];
  dk_ = scratch[Slot::dk];
  dv_ = scratch[Slot::dv];
  lse_ = scratch[Slot::lse];
  delta_ = scratch[Slot::delta];
  score_aux_ = scratch[Slot::score_aux];
  dot_scratch_ = scratch[Slot::dot];
  split_scores_.use_memory(work, scratch[Slot::split_scores]);
  split_products_.use_memory(work, scratch[Slot::split_products]);
  key_panels_.use_memory(scratch[Slot::key_panels], cached, tiles, panels);
  keys_.use_memory(scratch[Slot::keys], cached, tiles, keys);
  values_.use_memory(scratch[Slot::values], cached, tiles, values);
  if (work.rng_state != 0) dropout_ = flash_dropout(work, args);
}

void BackwardTile::query_tile(std::int64_t b, std::int64_t h, std::int64_t q0, bool for_keys,
                              bool for_queries) {
  b_ = b, h_ = h, q0_ = q0, rows_ = std::min<std::int64_t>(work_.tile_q, work_.s - q0);
  masks_.head(b, h);
  for (TileCache* tiles : {&keys_, &values_, &key_panels_}) tiles->set_head(b * work_.kv + h / work_.group());
  const float* q = tensors_.at(flash::q, at_.query(b, q0, h));
  const float *o = tensors_.at(flash::o, at_.output(b, q0, h)),
              *d_o = tensors_.at(flash::d_o, at_.output(b, q0, h));
  const std::int64_t o_row = tensors_.words(at_.o_row);
  load_transposed(q, tensors_.words(at_.q_row), rows_, tensors_.words(work_.d),
                  tensors_.bf16_pairs() ? 1.0f : work_.scale, width_, queries_);
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
    delta_[i] = tensors_.dot(o + i * o_row, d_o + i * o_row, work_.dv, dot_scratch_);
  }
}

void BackwardTile::key_tile(std::int64_t k0, bool masked, bool logits) {
  k0_ = k0, count_ = std::min<std::int64_t>(work_.tile_k, work_.t - k0);
  const std::int64_t kv = h_ / work_.group(), panel = micro_tile().columns;
  const std::int64_t index = k0 / work_.tile_k;
  const std::int64_t d = tensors_.words(work_.d), dv = tensors_.words(work_.dv);
  const AView k =
      rows_of(keys_, index, tensors_.at(flash::k, at_.key(b_, k0, kv)), tensors_.words(at_.k_row), count_, d);
  const AView v = rows_of(values_, index, tensors_.at(flash::v, at_.value(b_, k0, kv)),
                          tensors_.words(at_.v_row), count_, dv);
  find_visible_blocks(masks_.mask(), q0_, rows_, k0, count_, masked, blocks_);
  if (masked)
    for (float* tile : {scores_, products_}) std::fill_n(tile, count_ * width_, 0.0f);
  for (const VisibleBlock& block : blocks_) {
    const std::int64_t query = block.first_query, queries = block.queries, keys = block.keys;
    const std::int64_t at = block.first_key * width_ + query;
    float *scores = scores_ + at, *products = products_ + at;
    micro_gemm(keys, queries, d, from_row(k, block.first_key), {queries_ + query, width_, panel}, scores,
               width_, false, tensors_.operand_type());
    micro_gemm(keys, queries, dv, from_row(v, block.first_key), {cotangents_ + query, width_, panel},
               products, width_, false, tensors_.operand_type());
    apply_score_mods(work_, args_, masks_,
                     {block, b_, h_, q0_, rows_, k0, width_, masked, scores, softcap_grad_ + at, score_aux_});
    if (work_.rng_state != 0) {
      dropout_columns(dropout_, b_, h_, q0_ + query, queries, k0 + block.first_key, keys, score_aux_, width_);
      multiply_rows(products, score_aux_, keys, queries, width_);
    }
    backward_columns(scores, products, keys, queries, width_, lse_ + query, delta_ + query);
    if (logits) continue;
    if (work_.soft_cap > 0) multiply_rows(products, softcap_grad_ + at, keys, queries, width_);
    if (work_.rng_state != 0) multiply_rows(scores, score_aux_, keys, queries, width_);
  }
  if (tensors_.bf16_pairs()) split_products_.split(products_, width_, count_, rows_);
}

void BackwardTile::add_dq() {
  const BView k =
      panels_of(tensors_, key_panels_, k0_ / work_.tile_k,
                tensors_.at(flash::k, at_.key(b_, k0_, h_ / work_.group())), at_.k_row, count_, work_.d);
  if (tensors_.bf16_pairs()) split_products_.transpose_parts();
  add_transposed_product(tensors_, blocks_, rows_, products_, width_, split_products_, k, dq_, depth_);
}

void BackwardTile::add_dbias(float* into) {
  for (const VisibleBlock& block : blocks_) {
    const std::int64_t query = block.first_query, rows = std::min(block.queries, rows_ - query);
    if (rows <= 0) continue;
    // The probabilities in scores_ are no longer needed.
    transpose(products_ + block.first_key * width_ + query, width_, block.keys, rows, scores_, work_.tile_k);
    add_rows(into + query * work_.t + block.first_key, work_.t, scores_, work_.tile_k, rows, block.keys);
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
  if (tensors_.bf16_pairs()) split_scores_.split(scores_, width_, count_, rows_);
  const std::int64_t columns = micro_tile().columns;
  const auto add = [&](std::int64_t key, std::int64_t keys, const kernels::Range& seeing) {
    // A visible block begins with a panel, so its first query is even.
    const std::int64_t first = tensors_.words(seeing.begin),
                       steps = tensors_.steps(seeing.end - seeing.begin), at = key * width_ + seeing.begin,
                       all = columns * tensors_.steps(rows_);
    const auto sum = [&](const float* tile, const SplitBf16Tile& split, const float* panels, float* sums,
                         std::int64_t depth) {
      const auto product = [&](const AView& left) {
        micro_gemm(keys, depth, steps, left, {panels + first * columns, columns, all},
                   sums + (row + key) * depth, depth, true, tensors_.operand_type());
      };
      if (!tensors_.bf16_pairs()) return product(plain_a(tile + at, width_, 1));
      for (int part = 0; part < SplitBf16Tile::kParts; ++part) product(split.by_key(part, key, seeing.begin));
    };
    sum(scores_, split_scores_, cotangent_rows_, dv_, depth_v_);
    sum(products_, split_products_, query_rows_, dk_, depth_);
  };
  each_key_chunk(blocks_, rows_, count_, chunk_step(tensors_), add);
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
