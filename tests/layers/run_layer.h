// Runs one layer forward and backward by the contracts' references, for tests that compare it with plain loops.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/core/layer.h"

namespace meshloom::tests {

using Numbers = std::vector<float>;

constexpr std::int64_t kDim = 6, kBatch = 2, kSequence = 7, kTokens = kBatch * kSequence;
// Each f32 op rounds once; below 32 of them lie on the longest way through a layer.
constexpr double kTolerance = 32 * hal::epsilon(hal::DType::f32);

struct LayerResult {
  Numbers y;
  std::map<std::string, double> summaries;
  std::map<std::string, Numbers> updates, gradients;  // gradients of sum(y * cotangent) + auxiliary losses
  double aux = 0;
};

// All classes of layers.
const layers::ClassTable& layer_classes();
// Normal numbers times `size`, always the same for a name.
Numbers random_numbers(const std::string& name, std::int64_t count, float size);
Numbers layer_input();  // (kTokens, kDim)

// One layer (rows, kDim) -> (rows, kDim) as text, with parameters that are random by path but for those given; sequences
// of kSequence rows, or all of them if that does not divide them.
LayerResult run_layer(const std::string& text, const Numbers& x, std::map<std::string, Numbers> values = {},
                      bool training = true, const layers::ClassTable& table = layer_classes(),
                      const std::vector<std::int32_t>& segments = {});

// The same to `tolerance` times the largest number, which counts as at least 1.
void expect_near(const Numbers& got, const Numbers& want, double tolerance = kTolerance);

}  // namespace meshloom::tests
