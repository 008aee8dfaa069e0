// Which rows of a batch are there only to fill it.
#pragma once

#include "layers/core/context.h"

namespace meshloom::layers {

// For activations (rows, features) with one row per token: (rows), 1 where there is a token and 0 where there
// is padding (segment 0); no tensor where nothing is known of padding. Throws Error when there are not as
// many rows as tokens.
Tensor token_mask(Context& ctx, std::int64_t rows);

}  // namespace meshloom::layers
