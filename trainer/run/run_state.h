// What a checkpoint remembers besides tensors, and whether a run may go on from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/run/divergence_detector.h"
#include "trainer/run/machine.h"

namespace meshloom::trainer {

// state.json
struct RunState {
  std::int64_t step = 0;  // steps done: the next one reads the data of step `step` counted from 0
  std::int64_t tokens_seen = 0;
  std::uint64_t data = 0;        // xxhash64 of the training tokens
  std::int64_t data_tokens = 0;  // how many there are
  std::string hardware;          // where the bits were made: the name that the mesh rules saw
  Machine machine;               // and what else they depend on; empty in files of older versions
  DivergenceDetector::State health;
};

std::string to_json(const RunState& state);
RunState parse_run_state(const std::string& text, const std::string& where);

// Compares the tree of a checkpoint with the one that shall go on. Throws Error naming every field that would
// make it another run; gives "path: before -> after" for each that only changes rounding, and is silent about those that
// change nothing in the numbers (how long, how often to evaluate and save, which of several equal devices).
std::vector<std::string> check_same_run(const TrainerConfig& then, const TrainerConfig& now,
                                        const std::string& where);

}  // namespace meshloom::trainer
