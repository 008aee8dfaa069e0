// Sequence packing: a row holds as many whole examples as fit. An example is never cut, attends to no other
// (segments), and starts at position 0 (positions).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/data/batches.h"
#include "trainer/data/examples.h"

namespace meshloom::trainer {

// Decides which examples share a row by best-fit decreasing: longest first, each into the fullest row that
// still has room for it, and fewer than max_examples. Depends on the lengths alone and takes at most O(n sequence / 64). Lengths are in
// [1, sequence].
struct RowPacking {
  std::vector<std::int64_t> examples;  // of all rows, row by row
  std::vector<std::int64_t> starts;  // the index in `examples` where each row begins, and the end of the last
  std::int64_t rows() const { return static_cast<std::int64_t>(starts.size()) - 1; }
};
RowPacking pack_rows(const std::vector<std::int64_t>& lengths, std::int64_t sequence,
                     std::int64_t max_examples = std::numeric_limits<std::int64_t>::max());
// Every example in a row of its own.
RowPacking single_rows(std::int64_t count);

// Every epoch visits each row once, in its own order. The same examples share a row in every epoch.
class PackedRows : public Batches {
 public:
  // Without `pack` every row holds one example. A row has room for `source` tokens of its examples' sources.
  // `max_examples` is of a row that is packed. Throws Error for a range without examples.
  PackedRows(ExampleRange range, std::int64_t batch, std::int64_t sequence, std::uint64_t seed, bool shuffle,
             bool pack, std::int64_t source = 0,
             std::int64_t max_examples = std::numeric_limits<std::int64_t>::max());

  std::int64_t rows_per_epoch() const override { return packing_.rows(); }
  Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const override;

 private:
  void append(std::int64_t row, Batch& batch) const;

  ExampleRange range_;
  std::int64_t batch_, sequence_, source_;
  std::uint64_t seed_;
  bool shuffle_;
  RowPacking packing_;
};

}  // namespace meshloom::trainer
