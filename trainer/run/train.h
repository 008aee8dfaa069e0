// A whole run: text in, checkpoints and metrics out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "hal/device.h"
#include "kernels/catalog.h"
#include "trainer/rules/trainer_config.h"

namespace meshloom::trainer {

struct TrainOptions {
  std::string out;      // directory of checkpoints, metrics.jsonl, events, loss.svg
  bool resume = false;  // from the newest whole checkpoint in `out`
  std::string init;     // a checkpoint whose parameters the run starts from; its optimizer starts fresh
  bool quiet = false;   // no progress
  std::int64_t sample_tokens = 200;  // of text at the end; 0 = none
  std::string command;  // what to type to go on, for the message after Ctrl-C
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
