// What stands in which row of which step: a pure function of the seed and the step, so that a resumed run, or one on
// another mesh, reads the same data.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/corpus.h"

namespace meshloom::trainer {

// A permutation of [0, count), given by (seed, epoch): a Feistel network over the next power of four, walked
// until it lands inside (Black and Rogaway, 2002). Constant memory.
std::uint64_t permute_index(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                            std::uint64_t epoch);

struct Batch {
  std::vector<std::int32_t> tokens, targets;  // (rows, sequence); a negative target is ignored
  // The same where rows hold several documents, else empty: which document a token belongs to (from 1; 0 = padding),
  // and its position in it.
  std::vector<std::int32_t> segments, positions;
  // What a model with an encoder reads, (rows, source), which document of the row it is for (0 = padding), and where it
  // stands in that document's source; else empty.
  std::vector<std::int32_t> source, source_segments, source_positions;

  void append(const Batch& rows);
};

// One part of the data as rows of one length.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual std::int64_t windows() const = 0;  // rows of an epoch
  // Rows [first, first + rows) of the step; steps count from 0. Threads may call it at once.
  virtual Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const = 0;
};

// Windows of running text. Every epoch visits each window once, in an order of its own; windows are `sequence` tokens
// apart and start at an offset that differs by epoch where the corpus is long enough to give one up for it. Targets are
// the next tokens.
class TextWindows : public Batches {
 public:
  // Throws Error when the range is shorter than sequence + 1.
  TextWindows(TokenRange range, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
              bool shuffle = true);

  std::int64_t windows() const override { return windows_; }
  // First token of row `row` of step `step`.
  std::int64_t start(std::int64_t step, std::int64_t row) const;
  Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const override;

 private:
  TokenRange range_;
  std::int64_t batch_, sequence_, windows_;
  std::uint64_t seed_;
  bool shuffle_, offsets_;
};

}  // namespace meshloom::trainer
