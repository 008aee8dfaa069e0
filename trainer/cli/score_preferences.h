// `meshloom score --preferences`: what a reference model says of the answers of preferences.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/cli/command.h"
#include "trainer/cli/inference_recipe.h"
#include "trainer/cli/model_to_run.h"

namespace meshloom::trainer {

struct ScorePreferencesOptions {
  std::string file, out;      // .jsonl files; `out` is replaced when all is scored
  std::int64_t sequence = 0;  // of the rows of the training; 0 = the recipe's
  InferenceOptions inference;
};

// Writes the lines of a file of preferences (jsonl_preference.h) with the log-probabilities of their answers under the model. Lines
// that are too long for a row are left out, which is said. Throws Error for the first line that is no preference.
int score_preferences(const ModelToRun& model, const Registries& registries,
                      const ScorePreferencesOptions& options);

}  // namespace meshloom::trainer
