#include "backends/cpu/kernels/flash_attention/flash_attention_mask.h"

#include <algorithm>
#include <limits>

namespace meshloom::backends::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kMostQueries = 128;  // whose words are at hand

// Hides [0, count) but for [shown.begin, shown.end) - first.
void hide_around(kernels::Range shown, std::int64_t first, std::int64_t count, float* row) {
  const std::int64_t begin = std::clamp<std::int64_t>(shown.begin - first, 0, count);
  const std::int64_t end = std::clamp<std::int64_t>(shown.end - first, begin, count);
  std::fill(row, row + begin, kHidden);
  std::fill(row + end, row + count, kHidden);
}

void hide_others(std::int32_t segment, const std::int32_t* segments, std::int64_t count, float* row) {
  for (std::int64_t at = 0; at < count; ++at) row[at] = segments[at] == segment ? row[at] : kHidden;
}

void find_spans(const std::int32_t* segments, std::int64_t length, std::int64_t tile,
                std::vector<kernels::SegmentSpan>& into) {
  into.clear();
  for (std::int64_t at = 0; at < length; at += tile)
    into.push_back(kernels::segment_span(segments, at, std::min(length, at + tile)));
}

}  // namespace

FlashMasks::FlashMasks(const FlashWork& work, const KernelArgs& args)
    : work_(work),
      args_(args),
      by_tensors_(work.q_segments != 0 || work.attention_bitmask != 0),
      mask_(work.mask()) {
  const auto integers = [&](std::int32_t binding) -> const std::int32_t* {
    return binding == 0 ? nullptr : args.at<std::int32_t>(static_cast<std::size_t>(binding));
  };
  tensors_ = {integers(work.q_segments), integers(work.q_segments == 0 ? 0 : work.q_segments + 1),
              integers(work.prefix), integers(work.query_offset)};
}

void FlashMasks::head(std::int64_t b, std::int64_t h) {
  const bool same_row = row_ == b;
  if (same_row && head_ == h) return;
  row_ = b, head_ = h;
  tensors_.bitmask = flash_bits(work_, args_, b, h);
  mask_ = work_.mask().of_row(tensors_, b);
  if (same_row || !mask_.q_segments) return;
  find_spans(mask_.q_segments, work_.s, work_.tile_q, q_spans_);
  find_spans(mask_.k_segments, work_.t, work_.tile_k, k_spans_);
}

kernels::Cover FlashMasks::with_tensors(kernels::Cover shown, std::int64_t q0, std::int64_t k0) const {
  if (tensors_.q_segments && shown != kernels::Cover::empty)
    shown = both(shown, segment_cover(q_spans_[static_cast<std::size_t>(q0 / work_.tile_q)],
                                      k_spans_[static_cast<std::size_t>(k0 / work_.tile_k)]));
  if (tensors_.bitmask && shown != kernels::Cover::empty)
    shown = both(shown, mask_.bits_cover(q0, std::min<std::int64_t>(work_.s, q0 + work_.tile_q), k0,
                                         std::min<std::int64_t>(work_.t, k0 + work_.tile_k)));
  return shown;
}

void FlashMasks::hide_by_keys(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                              float* scores, std::int64_t stride) const {
  for (std::int64_t j = 0; j < keys; ++j) {
    float* row = scores + j * stride;
    hide_around(mask_.queries(k0 + j), q0, queries, row);
    if (mask_.q_segments) hide_others(mask_.k_segments[k0 + j], mask_.q_segments + q0, queries, row);
  }
  if (mask_.bitmask) hide_unset(q0, queries, k0, keys, scores, stride);
}

void FlashMasks::hide_unset(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                            float* scores, std::int64_t stride) const {
  const std::int64_t words = mask_.bits_words();
  std::uint32_t column[kMostQueries];
  for (std::int64_t first = 0; first < queries; first += kMostQueries) {
    const std::int64_t count = std::min(kMostQueries, queries - first);
    for (std::int64_t j = 0; j < keys; ++j) {
      if (const std::int64_t key = k0 + j; j == 0 || key % 32 == 0)
        for (std::int64_t i = 0; i < count; ++i)
          column[i] = mask_.bitmask[(q0 + first + i) * words + key / 32];
      const std::uint32_t bit = std::uint32_t{1} << (k0 + j) % 32;
      float* row = scores + j * stride + first;
      for (std::int64_t i = 0; i < count; ++i) row[i] = (column[i] & bit) != 0 ? row[i] : kHidden;
    }
  }
}

void FlashMasks::hide_by_queries(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                                 float* scores, std::int64_t stride) const {
  for (std::int64_t i = 0; i < queries; ++i) {
    float* row = scores + i * stride;
    const kernels::Range window = mask_.window(q0 + i);
    const std::int64_t past = std::clamp<std::int64_t>(mask_.prefix - k0, 0, keys);  // the prefix is seen
    hide_around(window, k0 + past, keys - past, row + past);
    if (mask_.q_segments) hide_others(mask_.q_segments[q0 + i], mask_.k_segments + k0, keys, row);
    if (!mask_.bitmask) continue;
    const std::uint32_t* words = mask_.bitmask + (q0 + i) * mask_.bits_words();
    for (std::int64_t j = 0; j < keys; ++j)
      row[j] = words[(k0 + j) / 32] >> (k0 + j) % 32 & 1 ? row[j] : kHidden;
  }
}

}  // namespace meshloom::backends::cpu
