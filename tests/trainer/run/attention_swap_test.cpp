// Latent attention in the place of every attention: one line of text, every recipe; and it trains. So do
// masks and biases of other forms.
#include "tests/trainer/run/short_run.h"
#include "tests/trainer/run/swap.h"

namespace meshloom::trainer {
namespace {

const std::string kLatent = "LatentAttention{kv_rank=16 head_dim=16 rotary_dim=8}";

TEST(AttentionSwap, OneReplacementAndEveryOtherLineIsAsBefore) {
  const std::string place = "model.decoder.stack.layer.attention";
  swap_in_every_recipe("Attention", kLatent, R"([-+]model\.(encoder|decoder)\.stack\.layer\.attention\b.*)",
                       [&](const TrainerConfig& before, const TrainerConfig& after, const auto& dropped,
                           const layers::Traced& traced) {
                         for (const std::string& field : dropped)
                           EXPECT_THAT(field, testing::HasSubstr("num_kv_heads"));
                         for (const char* both : {".num_heads", ".mask", ".o_proj.bias", ".positions"})
                           EXPECT_EQ(layers::get(after, place + both), layers::get(before, place + both))
                               << both;
                         EXPECT_FALSE(traced.parameters.empty());
                       });
}

TEST(AttentionSwap, Trains) {
  World world;
  const Trained run = world.train("cpu-host-cpu-1", 20, {{}, "Attention", kLatent});
  EXPECT_LT(run.losses.back(), 0.85 * run.losses.front());
}

TEST(AttentionSwap, AMaskFunctionAndALearnedBiasTrain) {
  World world;
  const Trained run = world.train(
      "cpu-host-cpu-1", 12,
      {{},
       "Attention",
       "Attention{mask=MaskFunction{visible=\"k < 4 or q - k < 16 or (q - k) % 8 == 0\" base=Causal{}} "
       "distance_bias=RelativeBias{}}"});
  EXPECT_LT(run.losses.back(), 0.9 * run.losses.front());
  for (const char* op : {"mask_bits", "relative_bias", "relative_bias_grad"})
    EXPECT_EQ(run.variants.at(op), std::set<std::string>{"simd"}) << op;
}

}  // namespace
}  // namespace meshloom::trainer
