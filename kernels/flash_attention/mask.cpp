#include "kernels/flash_attention/mask.h"

namespace meshloom::kernels {
namespace {

// The sum of clamp(x, 0, most) over x < n.
std::int64_t clamped_sum(std::int64_t n, std::int64_t most) {
  if (n <= 0) return 0;
  const std::int64_t rising = std::min(n, most + 1);
  return rising * (rising - 1) / 2 + (n - rising) * most;
}

}  // namespace

Cover both(Cover a, Cover b) {
  if (a == Cover::empty || b == Cover::empty) return Cover::empty;
  return a == Cover::full && b == Cover::full ? Cover::full : Cover::partial;
}

SegmentSpan segment_span(const std::int32_t* segments, std::int64_t begin, std::int64_t end) {
  SegmentSpan span{segments[begin], segments[begin]};
  for (std::int64_t at = begin + 1; at < end; ++at) {
    span.least = std::min(span.least, segments[at]);
    span.most = std::max(span.most, segments[at]);
  }
  return span;
}

Cover segment_cover(SegmentSpan queries, SegmentSpan keys) {
  if (queries.most < keys.least || keys.most < queries.least) return Cover::empty;
  return queries.least == queries.most && keys.least == keys.most ? Cover::full : Cover::partial;
}

Cover AttentionMask::window_cover(std::int64_t q, std::int64_t q_end, std::int64_t k,
                                  std::int64_t k_end) const {
  // Windows move right with the query: together they show one stretch, and all of them what the last one's
  // begin and the first one's end leave.
  const Range first = window(q), last = window(q_end - 1);
  if (std::max(k, first.begin) >= std::min(k_end, last.end) && k >= prefix) return Cover::empty;
  const std::int64_t beyond = std::max(k, prefix);  // keys from here on need a window
  const bool all = beyond >= k_end || (last.begin <= beyond && k_end <= first.end);
  return all ? Cover::full : Cover::partial;
}

Cover AttentionMask::cover(std::int64_t q, std::int64_t q_end, std::int64_t k, std::int64_t k_end) const {
  const Cover shown = window_cover(q, q_end, k, k_end);
  if (shown == Cover::empty || !(q_segments || bitmask)) return shown;
  const Cover same =
      q_segments ? segment_cover(segment_span(q_segments, q, q_end), segment_span(k_segments, k, k_end))
                 : Cover::full;
  const Cover set = same != Cover::empty && bitmask ? bits_cover(q, q_end, k, k_end) : same;
  return both(both(shown, same), set);
}

Cover AttentionMask::bits_cover(std::int64_t q, std::int64_t q_end, std::int64_t k,
                                std::int64_t k_end) const {
  const std::int64_t first = k / 32, last = (k_end - 1) / 32, words = bits_words();
  std::uint32_t any = 0, missing = 0;
  for (std::int64_t word = first; word <= last; ++word) {
    std::uint32_t wanted = ~std::uint32_t{0};
    if (word == first) wanted &= ~std::uint32_t{0} << k % 32;
    if (word == last) wanted &= ~std::uint32_t{0} >> (31 - (k_end - 1) % 32);
    std::uint32_t some = 0, all = ~std::uint32_t{0};
    for (std::int64_t i = q; i < q_end; ++i) {
      some |= bitmask[i * words + word];
      all &= bitmask[i * words + word];
    }
    any |= some & wanted;
    missing |= ~all & wanted;
    if (any != 0 && missing != 0) return Cover::partial;
  }
  return any == 0 ? Cover::empty : Cover::full;
}

AttentionMask AttentionMask::of_row(const MaskTensors& tensors, std::int64_t b) const {
  AttentionMask row = *this;
  if (tensors.query_offset) row.offset = tensors.query_offset[b];
  if (tensors.prefix) row.prefix = std::clamp<std::int64_t>(tensors.prefix[b], 0, t);
  if (tensors.q_segments) {
    row.q_segments = tensors.q_segments + b * s;
    row.k_segments = tensors.k_segments + b * t;
  }
  row.bitmask = tensors.bitmask;
  return row;
}

std::int64_t AttentionMask::window_pairs() const {
  // More than this to either side shows nothing more.
  const std::int64_t most = s + t + std::abs(offset);
  const std::int64_t begin = offset - std::min(left, most), end = offset + std::min(right, most) + 1;
  if (end <= begin) return 0;
  const auto below = [&](std::int64_t shift) { return clamped_sum(shift + s, t) - clamped_sum(shift, t); };
  return below(end) - below(begin);
}

}  // namespace meshloom::kernels
