#include "layers/loss/preference_loss.h"

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/split.h"

namespace meshloom::layers {
namespace {

using kernels::Expr;

// (B, S) -> (B)
Tensor row_sums(Tensor x) { return kernels::reduce_sum(kernels::permute(x, {1, 0}), 1); }

Tensor ratio(Tensor sum, Tensor count) {
  const auto [s, n] = kernels::inputs<2>();
  return kernels::elementwise({sum, count}, s / max(n, 1));
}

}  // namespace

TokenLoss::Result PreferenceLoss::forward(Context&, Tensor logits, Tensor targets) {
  const kernels::CrossEntropy result = kernels::cross_entropy(logits, targets);
  return {result.loss, result.valid};
}

std::vector<Tensor> PreferenceLoss::sums_of(const Preferences& preferences, const Result& tokens) {
  const kernels::Shape shape = preferences.answers.type().shape;
  std::vector<Tensor> inputs{kernels::reshape(tokens.loss, shape), kernels::reshape(tokens.valid, shape),
                             preferences.answers};
  if (preferences.reference) inputs.push_back(preferences.reference);
  const auto [loss, valid, answer, reference] = kernels::inputs<4>();
  const Expr logprob = preferences.reference ? -loss - reference : -loss;
  std::vector<std::vector<Tensor>> parts(4);
  for (std::int64_t pair = 1; pair <= preferences.pairs; ++pair) {
    const auto is = [&](double number) { return valid * (answer > number - 0.5) * (answer < number + 0.5); };
    const Expr chosen = is(static_cast<double>(pair)), rejected = is(static_cast<double>(-pair));
    // Where a target is ignored, the loss and the reference mean nothing: a selection leaves them out, whatever they are.
    const std::vector<Tensor> terms = kernels::elementwise(
        inputs, {select(chosen, logprob, 0), select(rejected, logprob, 0), chosen, rejected}, shape);
    for (std::size_t i = 0; i < terms.size(); ++i) parts[i].push_back(row_sums(terms[i]));
  }
  std::vector<Tensor> sums;
  for (const std::vector<Tensor>& of_pairs : parts)
    sums.push_back(of_pairs.size() == 1 ? of_pairs[0] : kernels::concat_rows(of_pairs));
  return sums;
}

TokenLoss::Result PreferenceLoss::combine(Context& caller, Result tokens) {
  Context ctx = caller.child("preference");
  const std::vector<Tensor> sums = sums_of(ctx.get<Preferences>("preferences"), tokens);
  const auto [c, r, c_length, r_length] = kernels::inputs<4>();
  const Expr margin = reward({c, max(c_length, 1)}) - reward({r, max(r_length, 1)});
  // Rows have fewer pairs than they may have, and those that fill the last batch of an evaluation none.
  const Expr counts = (c_length > 0) * (r_length > 0);
  const kernels::Shape pairs = sums[0].type().shape;
  const std::vector<Tensor> of_pairs =
      kernels::elementwise(sums, {select(counts, pair_loss(margin), 0), counts}, pairs);
  if (ctx.training()) {
    const std::vector<Tensor> reported =
        kernels::elementwise(sums, {counts * (margin > 0), counts * margin}, pairs);
    const Tensor count = kernels::reduce_sum(of_pairs[1], 0);
    ctx.summary("accuracy", ratio(kernels::reduce_sum(reported[0], 0), count));
    ctx.summary("margin", ratio(kernels::reduce_sum(reported[1], 0), count));
  }
  return {of_pairs[0], of_pairs[1]};
}

void DPOLoss::Config::fields(FieldVisitor& v) {
  v("beta", beta, {"How strongly the model is held to the reference model.", above(0)});
  v("label_smoothing", label_smoothing,
    {"The part of the pairs that are taken to be the wrong way round.",
     Range{.min = 0, .max = 0.5, .exclusive_max = true}});
}

std::unique_ptr<Module> DPOLoss::Config::build(const Place& place) const {
  return std::make_unique<DPOLoss>(*this, place);
}

DPOLoss::DPOLoss(const Config& config, const Place& place)
    : PreferenceLoss(place), beta_(config.beta), smoothing_(config.label_smoothing) {
  if (!(beta_ > 0)) fail("beta must be above 0", std::to_string(beta_));
  if (!(smoothing_ >= 0 && smoothing_ < 0.5))
    fail("label_smoothing must be at least 0 and below 0.5", std::to_string(smoothing_));
}

Expr DPOLoss::reward(const Answer& answer) const { return beta_ * answer.logprob; }

Expr DPOLoss::pair_loss(const Expr& margin) const {
  const Expr right = -log_sigmoid(margin);
  return smoothing_ == 0 ? right : (1 - smoothing_) * right - smoothing_ * log_sigmoid(-margin);
}

void SimPOLoss::Config::fields(FieldVisitor& v) {
  v("beta", beta, {"Factor on the mean log-probability of an answer's tokens.", above(0)});
  v("gamma", gamma, {"By how much the chosen answer's reward shall be the larger.", at_least(0)});
}

std::unique_ptr<Module> SimPOLoss::Config::build(const Place& place) const {
  return std::make_unique<SimPOLoss>(*this, place);
}

SimPOLoss::SimPOLoss(const Config& config, const Place& place)
    : PreferenceLoss(place), beta_(config.beta), gamma_(config.gamma) {
  if (!(beta_ > 0)) fail("beta must be above 0", std::to_string(beta_));
  if (!(gamma_ >= 0)) fail("gamma must be at least 0", std::to_string(gamma_));
}

Expr SimPOLoss::reward(const Answer& answer) const { return beta_ * (answer.logprob / answer.length); }

Expr SimPOLoss::pair_loss(const Expr& margin) const { return -log_sigmoid(margin - gamma_); }

void add_preference_loss_classes(ClassTable& classes) {
  classes.add<DPOLoss::Config>();
  classes.add<SimPOLoss::Config>();
}

}  // namespace meshloom::layers
