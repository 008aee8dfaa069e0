// The contents of the rows of every step, as a pure function of the seed and the step (and of the parameters, where the model writes
// them): a resumed run, or a run on another mesh, reads the same data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/corpus.h"

namespace meshloom::trainer {

// A permutation of [0, count) that (seed, epoch) determines: a Feistel network over the next power of four
// with cycle walking (Black and Rogaway, 2002). Needs constant memory.
std::uint64_t permute_index(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                            std::uint64_t epoch);

struct Batch {
  std::vector<std::int32_t> tokens, targets;  // (rows, sequence); a negative target is ignored
  // When rows hold several documents: the document that each token belongs to (from 1; 0 = padding), and the
  // token's position in it. Otherwise empty.
  std::vector<std::int32_t> segments, positions;
  // (rows, source), when the model has an encoder: the tokens that it reads, the document of the row that
  // each belongs to (0 = padding), and its position in that document's source. Otherwise empty.
  std::vector<std::int32_t> source, source_segments, source_positions;
  // (rows, sequence), when rows hold preferences (layers/loss/preference_loss.h): p where the target is of the chosen answer of the
  // row's pair p, -p of its rejected one, else 0; and log-probabilities under a reference model, each the whole answer's at the
  // first of its targets, if they are known. Otherwise empty.
  std::vector<float> answers, reference_logprobs;
  // (rows, sequence), when the model has drawn the targets itself (layers/loss/policy_loss.h): the advantage of the answer that a target
  // is of, and the log-probability with which it was drawn. Otherwise empty.
  std::vector<float> advantages, old_logprobs;

  void append(const Batch& rows);
};

// The training or the evaluation part of the data as rows of one length.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual std::int64_t rows_per_epoch() const = 0;
  // Makes the rows of a step, of which those are asked for next, where they depend on the model. False = `interrupted` said so, and the
  // step has no rows.
  virtual bool prepare(std::int64_t /*step*/, const std::function<bool()>& /*interrupted*/) { return true; }
  // Of the step that was prepared last, or of an evaluation.
  struct Report {
    std::optional<double> reward = {};                        // the mean over its answers
    std::vector<std::pair<std::string, double>> values = {};  // more, by name
    std::vector<std::string> lines = {};                      // a JSON object for each answer
  };
  virtual const Report& report() const;
  // Where the model writes the answers: whether there are held-out prompts, and a report of the answers to them. Empty =
  // `interrupted` said so.
  virtual bool can_evaluate() const { return false; }
  virtual std::optional<Report> evaluate(const std::function<bool()>& interrupted);
  // Rows [first, first + rows) of the step; steps count from 0. Several threads may call this at once.
  virtual Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const = 0;
};

// Windows of running text, whose targets are the next tokens. Every epoch visits each window once, in its own
// order. Windows are `sequence` tokens apart; their offset differs between epochs when the corpus is long
// enough to spare one window.
class TextWindows : public Batches {
 public:
  // Throws Error when the range is shorter than sequence + 1.
  TextWindows(TokenRange range, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
              bool shuffle = true);

  std::int64_t rows_per_epoch() const override { return windows_; }
  // The first token of row `row` of step `step`.
  std::int64_t start(std::int64_t step, std::int64_t row) const;
  Batch rows(std::int64_t step, std::int64_t first, std::int64_t rows) const override;

 private:
  TokenRange range_;
  std::int64_t batch_, sequence_, windows_;
  std::uint64_t seed_;
  bool shuffle_, offsets_;
};

}  // namespace meshloom::trainer
