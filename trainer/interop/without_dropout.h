// A model as it is where nothing is learned.
#pragma once

#include <memory>

#include "layers/config/config.h"

namespace meshloom::trainer {

// Wrappers that only drop are gone, rates of attentions are 0. The parameters keep their paths.
std::unique_ptr<layers::Config> without_dropout(const layers::Config& model);

}  // namespace meshloom::trainer
