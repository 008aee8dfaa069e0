#include "backends/cpu/kernels/flash_attention_mask.h"

#include <algorithm>
#include <limits>

namespace meshloom::backends::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

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

FlashMasks::FlashMasks(const FlashWork& work, const KernelArgs& args) : work_(work), mask_(work.mask()) {
  const auto integers = [&](std::int32_t binding) -> const std::int32_t* {
    return binding == 0 ? nullptr : args.at<std::int32_t>(static_cast<std::size_t>(binding));
  };
  tensors_ = {integers(work.q_segments), integers(work.q_segments == 0 ? 0 : work.q_segments + 1),
              integers(work.prefix), integers(work.starts)};
}

void FlashMasks::row(std::int64_t b) {
  if (row_ == b) return;
  row_ = b;
  mask_ = work_.mask().of_row(tensors_, b);
  if (!mask_.q_segments) return;
  find_spans(mask_.q_segments, work_.s, work_.tile_q, q_spans_);
  find_spans(mask_.k_segments, work_.t, work_.tile_k, k_spans_);
}

void FlashMasks::hide_by_keys(std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                              float* scores, std::int64_t stride) const {
  for (std::int64_t j = 0; j < keys; ++j) {
    float* row = scores + j * stride;
    hide_around(mask_.queries(k0 + j), q0, queries, row);
    if (mask_.q_segments) hide_others(mask_.k_segments[k0 + j], mask_.q_segments + q0, queries, row);
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
  }
}

}  // namespace meshloom::backends::cpu
