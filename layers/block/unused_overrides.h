// Stacks whose layers do not differ any more, after an edit of a whole model.
#pragma once

#include "layers/config/config.h"

namespace meshloom::layers {

// Removes overrides that change no layer from every HeterogeneousStack of a tree. One without any becomes a Stack.
void remove_unused_overrides(Config& root);

}  // namespace meshloom::layers
