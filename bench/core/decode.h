// Times the programs that serve a model (trainer/inference/model_runner.h): tokens of texts that go on, and prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "bench/core/train_step.h"
#include "hal/device.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

struct DecodeOptions {
  std::vector<std::int64_t> texts{1};  // that go on at once, a case each
  std::int64_t context = 256;          // tokens of each of them
  std::int64_t prompt = 512;           // tokens of the case of a prompt; 0 = none
  std::int64_t rounds = 10;
  std::optional<bool> batch_invariant = {};  // as in EngineOptions
};

struct DecodeCase {
  std::string name;
  std::int64_t tokens = 0;      // that one run computes
  double bytes = 0, flops = 0;  // of one run, by the contracts; of the caches only what the texts have
  std::vector<double> wall;     // seconds of whole runs, with the writing of ids and the reading of logits
  std::vector<StepCall> calls;
};

struct DecodeReport {
  Header header;
  Ceilings ceilings;
  double read_bytes_per_second = 0;  // as the device's profile has it
  std::string recipe, batch_dependence;
  std::vector<DecodeCase> cases;
  bool stopped = false;
};

// Random parameters and random tokens; the cases take turns. Throws what ModelRunner's constructor throws. `stopped` and
// `progress` may be empty.
void run_decode(const trainer::TrainerConfig& config, const DecodeOptions& options, hal::Device& device,
                const kernels::Catalog& catalog, const std::function<bool()>& stopped,
                const std::function<void(int, int, const std::string&)>& progress, DecodeReport& report);

// With a break-down of each case by these fields of its calls (group() in train_step.h).
std::string to_text(const DecodeReport& report, const std::vector<std::string>& by);
std::string to_json(const DecodeReport& report, const std::vector<std::string>& by);

}  // namespace meshloom::bench
