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

Cover AttentionMask::cover(std::int64_t q, std::int64_t q_end, std::int64_t k, std::int64_t k_end) const {
  // Windows move right with the query: together they show one stretch, and all of them what the last one's
  // begin and the first one's end leave.
  const KeyRange first = window(q), last = window(q_end - 1);
  const bool shown = std::max(k, first.begin) < std::min(k_end, last.end) || k < prefix;
  if (!shown) return Cover::empty;
  const std::int64_t beyond = std::max(k, prefix);  // keys from here on need a window
  bool all = beyond >= k_end || (last.begin <= beyond && k_end <= first.end);
  if (q_segments) {
    const auto [q_least, q_most] = std::minmax_element(q_segments + q, q_segments + q_end);
    const auto [k_least, k_most] = std::minmax_element(k_segments + k, k_segments + k_end);
    if (*q_most < *k_least || *k_most < *q_least) return Cover::empty;
    all = all && *q_least == *q_most && *k_least == *k_most;
  }
  return all ? Cover::full : Cover::partial;
}

AttentionMask AttentionMask::of_row(const MaskTensors& tensors, std::int64_t b) const {
  AttentionMask row = *this;
  if (tensors.starts) row.offset = tensors.starts[b];
  if (tensors.prefix) row.prefix = std::clamp<std::int64_t>(tensors.prefix[b], 0, t);
  if (tensors.q_segments) {
    row.q_segments = tensors.q_segments + b * s;
    row.k_segments = tensors.k_segments + b * t;
  }
  return row;
}

std::int64_t AttentionMask::window_pairs() const {
  // More than this to either side shows nothing more.
  const std::int64_t most = s + t + std::abs(offset);
  const std::int64_t begin = offset - std::min(left, most), end = offset + std::min(right, most) + 1;
  const auto below = [&](std::int64_t shift) { return clamped_sum(shift + s, t) - clamped_sum(shift, t); };
  return below(end) - below(begin);
}

}  // namespace meshloom::kernels
