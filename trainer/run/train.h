// A whole training run: it reads text and writes checkpoints and metrics.
//
// What happens when something fails while the run trains:
//   The run goes on, says so once and tries again when a checkpoint cannot be written (at the next one that is due), when
//     metrics.jsonl or the event file cannot be written (their lines wait in memory), or when an old checkpoint cannot be
//     removed.
//   The run saves its last whole step and ends with an error when data cannot be read, when the host is out of memory, or
//     after 50 skipped steps in a row. It also ends with an error when the last checkpoint cannot be written.
//   The run opens the device again and goes on, to the same bits, when the device is lost, does not answer or did not run
//     what was submitted: from the newest copy of its state in the host's memory, else from its newest checkpoint. It ends with
//     an error and saves the copy when the device is lost three times without a new step, or cannot be opened again.
//   The run saves nothing and ends with an error when another run took the directory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hal/device.h"
#include "hal/transport/transport.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"
#include "trainer/run/run_plan.h"

namespace meshloom::trainer {

// The resolved recipe in a run's directory, which is written before the first step; beside it stand what it needs,
// parameters.txt and plan.txt.
constexpr const char* kRunRecipe = "recipe.txt";
// What `meshloom bench tune` had measured on the run's device when the run began. A resume chooses its kernels by it.
constexpr const char* kRunTuning = "tuning.json";

struct TrainResult {
  std::int64_t step = 0;  // the last step that was done
  double loss = 0;
  std::optional<double> eval_loss, reward, eval_reward;  // as in StepRecord
  std::string checkpoint;
  bool stopped = false;  // a signal ended the run
};

struct TrainOptions {
  std::string
      out;  // directory of checkpoints, records (run_records.h), the curve of the loss or reward, and texts about the run
  bool resume = false;       // from the newest whole and healthy checkpoint in `out`
  bool auto_resume = false;  // as `resume` where `out` has a checkpoint; otherwise the run starts at step 0
  // A resumed run may differ in what its bits depend on: hardware, driver, kernels, program.
  bool allow_rounding = false;
  std::string init;     // a checkpoint to take the parameters from; the optimizer starts at zero
  bool quiet = false;   // shows no progress
  bool silent = false;  // writes nothing to standard output
  SampleOptions sample;
  std::string
      reward;  // the command of a program that rewards the model's answers (reward_program.h); "" = none
  double reward_seconds = 60;  // for which it may be silent
  std::string command;         // the command that continues the run, for the message after a signal
  // To the other ranks of the job, as rank 0; nullptr = there are none. The config's mesh has as many ranks.
  hal::Transport* transport = nullptr;
  double patience = 600;  // seconds for which another rank may be silent
  bool overlap = true;    // false: nothing is computed while something moves between ranks
  // Opens the run's device again when it is lost; empty = its loss ends the run.
  std::function<std::unique_ptr<hal::Device>()> open_device;
  // Ends the process with an exit code (130; 1 where nothing could be saved). Called from another thread when a signal came and
  // the device does not finish its work in time; the newest copy in the host's memory is saved then. Empty, or where no
  // copies are made: the run ends when the device has finished.
  std::function<void(const TrainResult&, int code)> leave;
};

// Runs `config` (resolved and checked) on `device`, which is replaced when it is lost, and empty where it could not be opened
// again. What a user should know and is no error goes to `note`, also from another thread.
// Throws Error, OutOfMemory, DeviceLost; checkpoints that were saved before stay whole.
TrainResult train(const TrainerConfig& config, const TrainOptions& options,
                  std::unique_ptr<hal::Device>& device, const kernels::Catalog& catalog,
                  const layers::ClassTable& classes, const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
