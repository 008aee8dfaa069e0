#include "trainer/data/batches.h"

#include <bit>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

// SplitMix64's finalizer (Steele et al., 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

std::uint64_t permute_index(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                            std::uint64_t epoch) {
  if (count <= 1) return 0;
  const int half = (std::bit_width(count - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const std::uint64_t key = mix(mix(seed) ^ epoch);
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t next = left ^ (mix(key + (round << 56 ^ right)) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

void Batch::append(const Batch& rows) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(tokens, rows.tokens);
  add(targets, rows.targets);
  add(segments, rows.segments);
  add(positions, rows.positions);
  add(source, rows.source);
  add(source_segments, rows.source_segments);
  add(source_positions, rows.source_positions);
  add(answers, rows.answers);
  add(reference_logprobs, rows.reference_logprobs);
  add(advantages, rows.advantages);
  add(old_logprobs, rows.old_logprobs);
}

const Batches::Report& Batches::report() const {
  static const Report none;
  return none;
}

std::optional<Batches::Report> Batches::evaluate(const std::function<bool()>& /*interrupted*/) {
  return Report{};
}

TextWindows::TextWindows(TokenRange range, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
                         bool shuffle)
    : range_(range), batch_(batch), sequence_(sequence), seed_(seed), shuffle_(shuffle) {
  if (batch < 1) throw Error("batch", "must be at least 1", std::to_string(batch));
  if (sequence < 1) throw Error("sequence", "must be at least 1", std::to_string(sequence));
  if (range.size() < sequence + 1)
    throw Error("data",
                "must hold at least one window of sequence + 1 = " + std::to_string(sequence + 1) + " tokens",
                std::to_string(range.size()) + " tokens");
  offsets_ = shuffle && range.size() > 2 * sequence;
  windows_ = (range.size() - (offsets_ ? sequence : 1)) / sequence;
}

std::int64_t TextWindows::start(std::int64_t step, std::int64_t row) const {
  const std::int64_t position = step * batch_ + row;
  if (!shuffle_) return position % windows_ * sequence_;
  const auto epoch = static_cast<std::uint64_t>(position / windows_);
  const auto window = static_cast<std::int64_t>(permute_index(
      static_cast<std::uint64_t>(position % windows_), static_cast<std::uint64_t>(windows_), seed_, epoch));
  const std::int64_t offset = offsets_ ? static_cast<std::int64_t>(mix(mix(seed_ ^ 0x0ff5e7) ^ epoch) %
                                                                   static_cast<std::uint64_t>(sequence_))
                                       : 0;
  return window * sequence_ + offset;
}

Batch TextWindows::rows(std::int64_t step, std::int64_t first, std::int64_t rows) const {
  Batch batch;
  const auto count = static_cast<std::size_t>(rows * sequence_);
  batch.tokens.reserve(count);
  batch.targets.reserve(count);
  for (std::int64_t row = first; row < first + rows; ++row) {
    const std::int64_t at = start(step, row);
    for (std::int64_t i = 0; i < sequence_; ++i) {
      batch.tokens.push_back(range_[at + i]);
      batch.targets.push_back(range_[at + i + 1]);
    }
  }
  return batch;
}

}  // namespace meshloom::trainer
