#include "trainer/data/packing/packed_rows.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "hal/error.h"
#include "hal/math.h"

namespace meshloom::trainer {
namespace {

constexpr std::int32_t kIgnored = -1;

// The rows by their free positions.
class RowsByRoom {
 public:
  explicit RowsByRoom(std::int64_t max_room)
      : rows_(static_cast<std::size_t>(max_room) + 1), some_(rows_.size() / 64 + 1) {}

  void put(std::int64_t room, std::int64_t row) {
    rows_[static_cast<std::size_t>(room)].push_back(row);
    some_[static_cast<std::size_t>(room / 64)] |= std::uint64_t{1} << (room % 64);
  }
  // Removes the row with the smallest room of at least `min_room` and returns it; -1 = there is none. Sets
  // `room` to its room.
  std::int64_t take(std::int64_t min_room, std::int64_t& room) {
    auto word = static_cast<std::size_t>(min_room / 64);
    std::uint64_t bits = some_[word] & ~std::uint64_t{0} << (min_room % 64);
    while (bits == 0)
      if (++word < some_.size())
        bits = some_[word];
      else
        return -1;
    room = static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits);
    std::vector<std::int64_t>& rows = rows_[static_cast<std::size_t>(room)];
    const std::int64_t row = rows.back();
    rows.pop_back();
    if (rows.empty()) some_[word] &= ~(std::uint64_t{1} << (room % 64));
    return row;
  }

 private:
  std::vector<std::vector<std::int64_t>> rows_;  // by their room
  std::vector<std::uint64_t> some_;              // one bit per room: whether rows have it
};

void append_document(const Example& example, std::size_t begin, std::size_t end, std::int32_t segment,
                     Batch& batch) {
  for (std::size_t i = begin; i + 1 < end; ++i) {
    batch.tokens.push_back(example.tokens[i]);
    batch.targets.push_back(example.loss_mask[i + 1] ? example.tokens[i + 1] : kIgnored);
    batch.segments.push_back(segment);
    batch.positions.push_back(static_cast<std::int32_t>(i - begin));
  }
}

// The chosen answer's document, and behind it the rejected one's, of the row's pair `pair`.
void append_preference(const Example& example, std::int32_t pair, Batch& batch) {
  const std::array<std::size_t, 3> bounds = {0, example.rejected, example.tokens.size()};
  for (std::size_t which = 0; which < 2; ++which) {
    const std::size_t first = batch.targets.size();
    append_document(example, bounds[which], bounds[which + 1],
                    2 * pair - 1 + static_cast<std::int32_t>(which), batch);
    batch.answers.resize(batch.targets.size(), 0);
    if (example.reference) batch.reference_logprobs.resize(batch.targets.size(), 0);
    bool before = false;  // a target of the answer
    for (std::size_t i = first; i < batch.targets.size(); ++i) {
      if (batch.targets[i] == kIgnored) continue;
      batch.answers[i] = static_cast<float>(which == 0 ? pair : -pair);
      if (example.reference && !before)
        batch.reference_logprobs[i] = static_cast<float>((*example.reference)[which]);
      before = true;
    }
  }
}

}  // namespace

RowPacking pack_rows(const std::vector<std::int64_t>& lengths, std::int64_t sequence,
                     std::int64_t max_examples) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto length = [&](std::int64_t example) { return lengths[static_cast<std::size_t>(example)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return length(a) > length(b); });
  RowsByRoom rooms(sequence);
  std::vector<std::int64_t> row_of(lengths.size());
  std::vector<std::int64_t> counts;
  for (const std::int64_t example : order) {
    std::int64_t room = sequence;
    std::int64_t row = rooms.take(length(example), room);
    if (row < 0) {
      row = static_cast<std::int64_t>(counts.size());
      room = sequence;
      counts.push_back(0);
    }
    row_of[static_cast<std::size_t>(example)] = row;
    if (++counts[static_cast<std::size_t>(row)] < max_examples) rooms.put(room - length(example), row);
  }
  RowPacking packing;
  packing.starts.push_back(0);
  for (const std::int64_t count : counts) packing.starts.push_back(packing.starts.back() + count);
  packing.examples.resize(lengths.size());
  std::vector<std::int64_t> next(packing.starts.begin(), packing.starts.end() - 1);
  for (std::size_t i = 0; i < row_of.size(); ++i)
    packing.examples[static_cast<std::size_t>(next[static_cast<std::size_t>(row_of[i])]++)] =
        static_cast<std::int64_t>(i);
  return packing;
}

RowPacking single_rows(std::int64_t count) {
  RowPacking packing;
  packing.examples.resize(static_cast<std::size_t>(count));
  packing.starts.resize(static_cast<std::size_t>(count) + 1);
  std::iota(packing.examples.begin(), packing.examples.end(), std::int64_t{0});
  std::iota(packing.starts.begin(), packing.starts.end(), std::int64_t{0});
  return packing;
}

PackedRows::PackedRows(ExampleRange range, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
                       bool shuffle, bool pack, std::int64_t source, std::int64_t max_examples)
    : range_(range), batch_(batch), sequence_(sequence), source_(source), seed_(seed), shuffle_(shuffle) {
  if (batch < 1) throw Error("batch", "must be at least 1", std::to_string(batch));
  if (sequence < 1) throw Error("sequence", "must be at least 1", std::to_string(sequence));
  if (range.size() < 1) throw Error("data", "must hold at least one example", "none");
  if (!pack) {
    packing_ = single_rows(range.size());
    return;
  }
  std::vector<std::int64_t> lengths;
  // An example needs the larger of two fractions of a row, that of the tokens and that of the source. Rows
  // that fit by this measure, rounded up, fit by both.
  const std::int64_t room = std::max(sequence, source);
  const auto part = [&](std::int64_t length, std::int64_t capacity) {
    return capacity > 0 ? hal::ceil_div(length * room, capacity) : 0;
  };
  for (std::int64_t i = range.begin; i < range.end; ++i)
    lengths.push_back(std::max(part(range.examples->positions(i), sequence),
                               part(range.examples->source_length(i), source)));
  packing_ = pack_rows(lengths, room, max_examples);
}

void PackedRows::append(std::int64_t row, Batch& batch) const {
  const std::size_t end = batch.tokens.size() + static_cast<std::size_t>(sequence_),
                    source_end = batch.source.size() + static_cast<std::size_t>(source_);
  std::int32_t segment = 0;
  for (std::int64_t at = packing_.starts[static_cast<std::size_t>(row)];
       at < packing_.starts[static_cast<std::size_t>(row) + 1]; ++at) {
    const Example example =
        range_.examples->read(range_.begin + packing_.examples[static_cast<std::size_t>(at)]);
    ++segment;
    if (example.rejected > 0) {
      append_preference(example, segment, batch);
      continue;
    }
    append_document(example, 0, example.tokens.size(), segment, batch);
    for (std::size_t i = 0; i < example.source.size(); ++i) {
      batch.source.push_back(example.source[i]);
      batch.source_segments.push_back(segment);
      batch.source_positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  batch.tokens.resize(end, 0);
  batch.targets.resize(end, kIgnored);
  batch.segments.resize(end, 0);
  batch.positions.resize(end, 0);
  for (std::vector<float>* part : {&batch.answers, &batch.reference_logprobs})
    if (!part->empty()) part->resize(end, 0);
  for (std::vector<std::int32_t>* part : {&batch.source, &batch.source_segments, &batch.source_positions})
    part->resize(source_end, 0);
}

Batch PackedRows::rows(std::int64_t step, std::int64_t first, std::int64_t rows) const {
  Batch batch;
  for (std::int64_t row = first; row < first + rows; ++row) {
    const std::int64_t position = step * batch_ + row, epoch = position / rows_per_epoch(),
                       index = position % rows_per_epoch();
    append(shuffle_ ? static_cast<std::int64_t>(permute_index(static_cast<std::uint64_t>(index),
                                                              static_cast<std::uint64_t>(rows_per_epoch()),
                                                              seed_, static_cast<std::uint64_t>(epoch)))
                    : index,
           batch);
  }
  return batch;
}

}  // namespace meshloom::trainer
