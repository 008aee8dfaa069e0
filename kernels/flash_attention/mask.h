// Which keys a query sees: the one place that knows, for the reference and for kernels that run on the host.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meshloom::kernels {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;  // of AttentionMask::left and right

// [begin, end); empty where end <= begin.
struct Range {
  std::int64_t begin, end;
};

// What a mask makes of a block of (query, key) pairs.
enum class Cover : std::uint8_t { empty, partial, full };

// What two masks leave of a block together, as far as that can be said.
Cover both(Cover a, Cover b);

// The least and the greatest segment of a stretch of positions.
struct SegmentSpan {
  std::int32_t least, most;
};
SegmentSpan segment_span(const std::int32_t *segments, std::int64_t begin, std::int64_t end);
Cover segment_cover(SegmentSpan queries, SegmentSpan keys);

// What a call's tensors say of masks, in host memory; null where the call has none.
struct MaskTensors {
  const std::int32_t *q_segments = nullptr, *k_segments = nullptr;  // (B, S), (B, T)
  const std::int32_t *prefix = nullptr, *query_offset = nullptr;    // (B)
  const std::uint32_t *bitmask = nullptr;  // of one batch row and head: (S, ceil(T / 32))
};

// The mask of one batch row (and of one head, where bits differ by head): key j is visible to query i, which stands at p = i + offset among the keys, iff
//   (p - left <= j <= p + right  or  j < prefix)  and  q_segments[i] == k_segments[j]  and  its bit is set
struct AttentionMask {
  std::int64_t s = 1, t = 1;
  std::int64_t offset = 0;
  std::int64_t left = kUnlimited, right = kUnlimited;
  std::int64_t prefix = 0;
  const std::int32_t *q_segments = nullptr, *k_segments = nullptr;
  const std::uint32_t *bitmask = nullptr;

  std::int64_t bits_words() const { return (t + 31) / 32; }
  bool bit(std::int64_t i, std::int64_t j) const { return bitmask[i * bits_words() + j / 32] >> j % 32 & 1; }
  bool windowed() const { return left < kUnlimited || right < kUnlimited; }
  // The keys that query i's window shows.
  Range window(std::int64_t i) const {
    return {std::clamp<std::int64_t>(i + offset - left, 0, t),
            std::clamp<std::int64_t>(i + offset + right + 1, 0, t)};
  }
  // The queries whose window or prefix shows key j.
  Range queries(std::int64_t j) const {
    if (j < prefix) return {0, s};
    return {std::clamp<std::int64_t>(j - offset - right, 0, s),
            std::clamp<std::int64_t>(j - offset + left + 1, 0, s)};
  }
  // From the first to the last key that window or prefix show to some query of [q, q_end).
  Range keys(std::int64_t q, std::int64_t q_end) const {
    const Range shown{window(q).begin, window(q_end - 1).end};
    if (prefix == 0) return shown;
    return shown.begin < shown.end ? Range{0, std::max(prefix, shown.end)} : Range{0, prefix};
  }
  bool visible(std::int64_t i, std::int64_t j) const {
    const Range keys = window(i);
    if ((j < keys.begin || j >= keys.end) && j >= prefix) return false;
    return (!q_segments || q_segments[i] == k_segments[j]) && (!bitmask || bit(i, j));
  }

  // Of queries [q, q_end) and keys [k, k_end), neither of them none: exact for windows, prefixes and bits, each by itself;
  // where they meet, or segments change within the block, a block that nobody sees may be called partial.
  Cover cover(std::int64_t q, std::int64_t q_end, std::int64_t k, std::int64_t k_end) const;
  // By bits alone.
  Cover bits_cover(std::int64_t q, std::int64_t q_end, std::int64_t k, std::int64_t k_end) const;
  // By window and prefix alone.
  Cover window_cover(std::int64_t q, std::int64_t q_end, std::int64_t k, std::int64_t k_end) const;

  // This mask with what the tensors say of batch row b (and `bitmask` of its own row and head).
  AttentionMask of_row(const MaskTensors &tensors, std::int64_t b) const;

  // (query, key) pairs that windows show; prefix and segments do not count.
  std::int64_t window_pairs() const;
};

}  // namespace meshloom::kernels
