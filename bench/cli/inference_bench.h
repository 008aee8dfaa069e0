// What `bench decode` and `bench serve` begin and end with.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "bench/cli/command.h"
#include "bench/cli/options.h"
#include "bench/core/environment.h"
#include "hal/device.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/config/trainer_config.h"

namespace meshloom::bench {

struct InferenceBench {
  trainer::TrainerConfig config;
  std::unique_ptr<hal::Device> device;
  std::string recipe;  // its name, or the file's
};

// Opens the device of a recipe, and says where the machine was busy. Throws Error where a result could not be written to `json`, for a device
// that does not compute, and for a model with an encoder.
InferenceBench open_inference_bench(const trainer::Registries& registries, trainer::RecipeOptions recipe,
                                    const std::string& json);
Header header_of(const InferenceBench& bench);

// Prints or writes a report, `json` being a file, "-" or "", by functions that make its text and its JSON; returns the exit code.
template <typename Report, typename Json, typename Text>
int finish(const Report& report, const std::string& json, Json to_json, Text to_text) {
  if (json == "-")
    fmt::print("{}", to_json(report));
  else if (!json.empty())
    write_file(json, to_json(report));
  if (json != "-") fmt::print("{}", to_text(report));
  return report.stopped ? kStopped : kDone;
}

}  // namespace meshloom::bench
