// A run's directory holds a copy of its tokenizer's file, so that it can be moved, and outlives what it was
// made of.
#pragma once

#include <string>

#include "layers/config/config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/rules/trainer_config.h"

namespace meshloom::trainer {

// Copies the tokenizer's file, if it has one, into `directory`, unless a file of that name is there. Throws
// Error.
void keep_tokenizer_file(const TokenizerConfig& tokenizer, const std::string& directory);

// The recipe in a checkpoint. A tokenizer's file that is not where the run found it is the copy in the run's
// directory.
TrainerConfig stored_recipe(const Checkpoint& checkpoint, const layers::ClassTable& classes);

}  // namespace meshloom::trainer
