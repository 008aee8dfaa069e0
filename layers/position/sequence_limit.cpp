#include "layers/position/sequence_limit.h"

namespace meshloom::layers {

std::unique_ptr<Module> SequenceLimit::Config::build(const Place& place) const {
  return std::make_unique<SequenceLimit>(*this, place);
}

SequenceLimit::SequenceLimit(const Config& config, const Place& place)
    : EmbeddingPosition(place), max_length_(config.max_length) {
  if (max_length_ <= 0) fail("max_length is positive", std::to_string(max_length_));
}

Tensor SequenceLimit::forward(Context&, Tensor x) {
  if (x.dim(1) > max_length_)
    fail("takes sequences up to " + std::to_string(max_length_), std::to_string(x.dim(1)));
  return x;
}

void add_sequence_limit_classes(ClassTable& classes) { classes.add<SequenceLimit::Config>(); }

}  // namespace meshloom::layers
