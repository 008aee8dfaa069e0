// The log-probability of a token, of a model's logits.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/inference/request.h"

namespace meshloom::trainer {

// The score of token `id`, with the `top` most probable tokens; of ties the lower ids. Logits that are not finite have no share: a token
// of such a logit has the log-probability minus infinity. Summed in double.
TokenScore token_score(std::span<const float> logits, std::int32_t id, int top);

}  // namespace meshloom::trainer
