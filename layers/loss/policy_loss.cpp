#include "layers/loss/policy_loss.h"

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"

namespace meshloom::layers {
namespace {

using kernels::Expr;

// Beyond it exp() would soon overflow, and a ratio means nothing any more.
constexpr double kMaxLogRatio = 20;

}  // namespace

void GRPOLoss::Config::fields(FieldVisitor& v) {
  v("clip_low", clip_low,
    {"By how much the ratio of the probabilities now and then may fall below 1.",
     Range{.min = 0, .max = 1, .exclusive_min = true}});
  v("clip_high", clip_high,
    {"By how much the ratio of the probabilities now and then may rise above 1.", above(0)});
}

std::unique_ptr<Module> GRPOLoss::Config::build(const Place& place) const {
  return std::make_unique<GRPOLoss>(*this, place);
}

GRPOLoss::GRPOLoss(const Config& config, const Place& place)
    : TokenLoss(place), clip_low_(config.clip_low), clip_high_(config.clip_high) {
  if (!(clip_low_ > 0 && clip_low_ <= 1))
    fail("clip_low must be above 0 and at most 1", std::to_string(clip_low_));
  if (!(clip_high_ > 0)) fail("clip_high must be above 0", std::to_string(clip_high_));
}

TokenLoss::Result GRPOLoss::forward(Context&, Tensor logits, Tensor targets) {
  const kernels::CrossEntropy result = kernels::cross_entropy(logits, targets);
  return {result.loss, result.valid};
}

TokenLoss::Result GRPOLoss::combine(Context& caller, Result tokens) {
  Context ctx = caller.child("policy");
  const auto& rollouts = ctx.get<Rollouts>("rollouts");
  const kernels::Shape shape = tokens.loss.type().shape;
  const std::vector<Tensor> inputs{tokens.loss, tokens.valid, kernels::reshape(rollouts.advantages, shape),
                                   kernels::reshape(rollouts.old_logprobs, shape)};
  const auto [loss, valid, advantage, old] = kernels::inputs<4>();
  const Expr log_ratio = min(-loss - old, kMaxLogRatio), ratio = exp(log_ratio);
  const Expr low = (advantage < 0) * (ratio < 1 - clip_low_),
             high = (advantage > 0) * (ratio > 1 + clip_high_);
  // A selection in place of min() and clip(), both of whose arguments are equal where r is 1 and have derivatives that are not.
  const Expr policy = -advantage * select(low, 1 - clip_low_, select(high, 1 + clip_high_, ratio));
  // Where a target is ignored, its log-probabilities mean nothing.
  const Tensor of_tokens = kernels::elementwise(inputs, select(valid, policy, 0));
  if (ctx.training()) {
    const std::vector<Tensor> terms = kernels::elementwise(
        inputs, {select(valid, low + high, 0), select(valid, ratio - 1 - log_ratio, 0)}, shape);
    const Tensor count = kernels::reduce_sum(tokens.valid, 0);
    const auto [sum, n] = kernels::inputs<2>();
    const auto mean = [&](Tensor x) {
      return kernels::elementwise({kernels::reduce_sum(x, 0), count}, sum / max(n, 1));
    };
    ctx.summary("clip_fraction", mean(terms[0]));
    ctx.summary("approx_kl", mean(terms[1]));
  }
  return {of_tokens, tokens.valid};
}

void add_policy_loss_classes(ClassTable& classes) { classes.add<GRPOLoss::Config>(); }

}  // namespace meshloom::layers
