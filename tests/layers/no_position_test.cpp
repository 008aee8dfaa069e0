#include "layers/position/no_position.h"

#include <gtest/gtest.h>

#include "tests/layers/run_layer.h"

namespace meshloom::tests {
namespace {

TEST(NoPosition, IsAnAttentionWithoutPositions) {
  const auto run = [](const std::string& positions) {
    return run_layer("Attention{num_heads=3 num_kv_heads=1 positions=" + positions + "}", layer_input());
  };
  const LayerResult got = run("NoPosition{}"), want = run("none"), rotary = run("RotaryPosition{}");
  EXPECT_EQ(got.y, want.y);
  EXPECT_EQ(got.gradients, want.gradients);
  EXPECT_NE(got.y, rotary.y);
}

}  // namespace
}  // namespace meshloom::tests
