// Times the engine that serves (trainer/inference/engine.h) without HTTP: several texts that are written at once, from their prompts on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

struct ServeOptions {
  std::vector<std::int64_t> texts{1};  // written at once, a case each
  std::int64_t prompt = 256;           // tokens of each prompt
  std::int64_t tokens = 128;           // that are generated behind it
  std::int64_t step_tokens = 128;      // as in EngineOptions
  double temperature = 1;              // 0 = the most probable tokens
  std::int64_t rounds = 3;
  std::optional<bool> batch_invariant = {};  // as in EngineOptions
};

// One entry for each round.
struct ServeCase {
  std::int64_t texts = 0;
  std::vector<double> prompts;  // seconds until the last text has its first token
  std::vector<double> whole;    // seconds until the last text has ended
  std::vector<double> between;  // seconds from one token of a text to its next, the median over all
};

struct ServeReport {
  Header header;
  std::string recipe, batch_dependence;
  ServeOptions options;
  std::vector<ServeCase> cases;
  bool stopped = false;
};

// Random parameters and random prompts, other ones in each round; the cases take turns. Throws what Engine's constructor throws.
// `stopped` and `progress` may be empty.
void run_serve(const trainer::TrainerConfig& config, const ServeOptions& options, hal::Device& device,
               const kernels::Catalog& catalog, const std::function<bool()>& stopped,
               const std::function<void(int, int, const std::string&)>& progress, ServeReport& report);

std::string to_text(const ServeReport& report);
std::string to_json(const ServeReport& report);

}  // namespace meshloom::bench
