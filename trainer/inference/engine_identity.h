// Of an engine: what another must have alike to go on from its keys and values.
#pragma once

#include <string>

#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/inference/kv_identity.h"

namespace meshloom::trainer {

class Engine;

// Of an engine of this recipe, edited and resolved as it runs, with these parameters, all of which are read. `arithmetic` is
// KVIdentity::arithmetic.
KVIdentity kv_identity_of(const TrainerConfig& config, const StoredTensors& weights, const Engine& engine,
                          std::string arithmetic);

}  // namespace meshloom::trainer
