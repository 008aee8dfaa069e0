#include "trainer/cli/plan_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/cli/command.h"
#include "trainer/compose/report.h"
#include "trainer/execute/commands_of.h"
#include "trainer/run/plan_text.h"

namespace meshloom::trainer {

int plan_serving(const TrainerConfig& config, const EngineOptions& options, const Registries& registries,
                 const hal::DeviceInfo& device, bool json) {
  const ModelRunnerOptions runner = runner_options(options, config);
  const ServingPlan serving =
      compose_serving(config, runner, registries.catalog, device, /*enforce_memory=*/false);
  const Plan& plan = serving.plan;
  for (const std::string& note : plan.notes) say_note(note);
  const std::int64_t tokens = runner.pages * runner.page_size;
  const std::int64_t page_bytes = plan.cache_bytes.page, sequence_bytes = plan.cache_bytes.sequence,
                     other_bytes = plan.peak_bytes - page_bytes * runner.pages,
                     available = memory_limit(device);
  // What the pools round up to is less than a page.
  const std::int64_t max_pages =
      available > 0 && page_bytes > 0 ? std::max<std::int64_t>((available - other_bytes) / page_bytes, 0) : 0;
  const bool fits = available <= 0 || plan.peak_bytes <= available;
  const auto seconds = [&](std::int64_t count) {
    return plan.predicted_seconds({Step::decode, static_cast<int>(count)});
  };
  const std::int64_t smallest = runner.tokens.front(), largest = runner.tokens.back();
  const bool launches_kernels = has_submissions(device);
  const auto launches = [&](std::int64_t count) {
    return commands_of(plan.steps.at({Step::decode, static_cast<int>(count)}), registries.catalog,
                       plan.blocks, device)
        .launches;
  };
  if (json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"hardware", config.hardware},
                                               {"device", plan.device},
                                               {"profile", plan.profile},
                                               {"dtype", config.dtype},
                                               {"parameters", plan.parameter_count()},
                                               {"max_length", runner.length},
                                               {"max_source", runner.source},
                                               {"max_sequences", runner.sequences},
                                               {"step_tokens", runner.tokens},
                                               {"page_size", runner.page_size},
                                               {"pages", runner.pages},
                                               {"cache_tokens", tokens},
                                               {"bytes_per_page", page_bytes},
                                               {"bytes_per_text", sequence_bytes},
                                               {"max_pages", max_pages},
                                               {"batch_invariant", serving.batch_dependence.empty()},
                                               {"batch_dependence", serving.batch_dependence},
                                               {"peak_bytes", plan.peak_bytes},
                                               {"device_bytes", available},
                                               {"fits", fits},
                                               {"memory", plan.memory},
                                               {"predicted_token_seconds", seconds(smallest)},
                                               {"predicted_step_seconds", seconds(largest)},
                                               {"token_launches", launches_kernels ? launches(smallest) : 0},
                                               {"step_launches", launches_kernels ? launches(largest) : 0},
                                               {"notes", plan.notes}})
                           .dump(2));
  } else {
    fmt::print("hardware    {} (device {}, profile {})\n", config.hardware, plan.device, plan.profile);
    fmt::print("parameters  {}, dtype {}\n", plan.parameter_count(), config.dtype);
    fmt::print("texts       up to {} of {} tokens at once, {} tokens a step{}\n", runner.sequences,
               runner.length, largest,
               runner.source > 0 ? fmt::format(", of sources of up to {} tokens", runner.source) : "");
    fmt::print("the same bits whatever else runs: {}\n",
               serving.batch_dependence.empty() ? "yes" : "no; " + serving.batch_dependence);
    fmt::print("predicted   {:.3g} s for a token alone, {:.3g} s for a step of {} tokens, with full caches\n",
               seconds(smallest), seconds(largest), largest);
    if (launches_kernels)
      fmt::print("launches    {} of kernels for a token alone, {} for a step of {} tokens\n",
                 launches(smallest), launches(largest), largest);
    fmt::print("{}", memory_text(plan, device));
    if (page_bytes > 0)
      fmt::print("cache       {} pages of {} tokens hold {} tokens, {} a token{}\n", runner.pages,
                 runner.page_size, tokens, readable_bytes(page_bytes / runner.page_size),
                 max_pages > 0 ? fmt::format("; {} pages, {} tokens, would fit", max_pages,
                                             max_pages * runner.page_size)
                               : "");
    if (sequence_bytes > 0)
      fmt::print("cache       {} for each of the {} texts at once, whatever their length; no prefix cache\n",
                 readable_bytes(sequence_bytes), runner.sequences);
    fmt::print("{}", kernels_text(plan));
  }
  std::fflush(stdout);
  try {
    require_memory(plan, serving.options, device);
  } catch (const hal::OutOfMemory& error) {
    say_error(error.what());
    return 2;
  }
  return 0;
}

}  // namespace meshloom::trainer
