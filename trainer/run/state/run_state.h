// The state of a run besides its tensors, and whether another configuration may continue the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/run/state/divergence_detector.h"
#include "trainer/run/state/machine.h"

namespace meshloom::trainer {

// The contents of a checkpoint's state.json.
struct RunState {
  std::int64_t step = 0;  // steps done; the next step reads the data of step `step`, counted from 0
  std::int64_t tokens_seen = 0;
  std::uint64_t data = 0;        // xxhash64 of the training tokens
  std::int64_t data_tokens = 0;  // the number of training tokens
  std::string hardware;          // the hardware's name, as the mesh rules saw it
  Machine machine;               // what else the bits depend on; empty in files of older versions
  DivergenceDetector::State health;
};

std::string to_json(const RunState& state);
RunState parse_run_state(const std::string& text, const std::string& where);

// Compares the recipe of a checkpoint (`then`) with the one that is to continue the run (`now`). Throws Error
// naming every field that makes it another run. Returns "path: before -> after" for each field that only
// changes rounding. Fields that change no number (how long to run, how often to evaluate and save, which of
// several equal devices) may differ.
std::vector<std::string> check_same_run(const TrainerConfig& then, const TrainerConfig& now,
                                        const std::string& where);

}  // namespace meshloom::trainer
