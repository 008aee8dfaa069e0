// A whole run: text in, checkpoints and metrics out.
//
// What goes wrong while it trains:
//   goes on, said once, tried again: a checkpoint that cannot be written (the next one that is due), metrics.jsonl or events
//     that cannot be written (lines wait in memory), an old checkpoint that cannot be removed;
//   ends with an error after the last whole step was saved: data that cannot be read, no memory on the host, 50 skipped
//     steps in a row; a last checkpoint that cannot be written ends with an error, too;
//   ends with an error and saves nothing: the device is lost or did not run what was submitted (what it holds cannot be
//     trusted), another run took the directory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::trainer {

struct TrainOptions {
  std::string out;           // directory of checkpoints, metrics.jsonl, events, loss.svg
  bool resume = false;       // from the newest whole and healthy checkpoint in `out`
  bool auto_resume = false;  // the same where `out` has a checkpoint; else the run starts
  // A resume may change what the bits depend on: hardware, driver, kernels, program.
  bool allow_rounding = false;
  std::string init;     // a checkpoint whose parameters the run starts from; its optimizer starts fresh
  bool quiet = false;   // no progress
  bool silent = false;  // nothing on standard output
  std::int64_t sample_tokens = 200;  // of text at the end; 0 = none
  std::string command;               // what to type to go on, for the message after a signal
};

struct TrainResult {
  std::int64_t step = 0;  // the last one done
  double loss = 0;
  std::optional<double> eval_loss;
  std::string checkpoint;
  bool stopped = false;  // by a signal
};

// Runs `config` (resolved and checked) on `device`. Notes that are not errors go to `note`. Throws Error,
// OutOfMemory, DeviceLost; checkpoints taken before stay whole.
TrainResult train(const TrainerConfig& config, const TrainOptions& options, hal::Device& device,
                  const kernels::Catalog& catalog, const layers::ClassTable& classes,
                  const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
