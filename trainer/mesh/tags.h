// The tags of messages that do not belong to a numbered exchange of a step. Exchanges of a step count up from 0, those over a
// pipeline from half of hal::kMaxTag.
#pragma once

#include <cstdint>

#include "hal/transport/transport.h"

namespace meshloom::trainer {

constexpr std::int32_t kValuePartsTag = hal::kMaxTag - 1;  // parts of a value, sent to rank 0 or by it
constexpr std::int32_t kCommandTag = hal::kMaxTag - 2;     // what rank 0 tells the other ranks to do
constexpr std::int32_t kTextTag = hal::kMaxTag - 3;        // what every rank has to say about itself

// Between the stages of a pipeline.
constexpr std::int32_t kForwardTag = hal::kMaxTag - 4, kBackwardTag = hal::kMaxTag - 5,
                       kGradientTag = hal::kMaxTag - 6, kParameterTag = hal::kMaxTag - 7,
                       kEvaluationTag = hal::kMaxTag - 8;

}  // namespace meshloom::trainer
