// What the programs of a plan are for.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// What a program of a plan is for. compose.h names the values that each reads and writes.
enum class Step : std::uint8_t {
  accumulate,  // accumulation > 1: adds one micro-batch to the sums
  apply,       // accumulation > 1: updates the parameters from the sums and clears them
  evaluate,    // the loss only
  logits,
  decode,  // the logits of new tokens, whose caches keep what was computed of earlier ones (layers/core/inference_step.h)
  train,   // accumulation == 1: forward, backward and update
  // Over a pipeline, instead of accumulate, of one chunk of layers and for one slot:
  forward,
  backward,
  weights,  // the gradients of parameters alone, where the schedule has them apart
  outer,    // over islands: exchanges what a part of the layers has learnt; the chunk is the part
  encode    // what is kept of a source for the programs decode, of models with an encoder
};
// The program's name: "accumulate", "apply", "eval", "logits", "decode", "train", "forward", "backward", "weights",
// "outer", "encode".
std::string_view to_string(Step step);

// Which program of a plan. Of decode there is one for each number of new tokens, which stands in the place of the chunk.
// Over a pipeline a rank has those of one or more chunks of layers; and as many copies of forward, backward and weights as it
// has micro-batches in flight: each works on the values of its own slot.
struct ProgramKey {
  Step step;
  int chunk = 0, slot = 0;

  ProgramKey(Step s, int of_chunk = 0, int of_slot = 0) : step(s), chunk(of_chunk), slot(of_slot) {}
  auto operator<=>(const ProgramKey&) const = default;
};

// The name that a value of a program has in one slot: "tokens@0.2" in slot 2 of chunk 0.
std::string name_in_slot(const std::string& name, int chunk, int slot);

}  // namespace meshloom::trainer
