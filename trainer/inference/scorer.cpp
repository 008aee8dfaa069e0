#include "trainer/inference/scorer.h"

#include <algorithm>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/inference/model_runner.h"
#include "trainer/inference/token_score.h"

namespace meshloom::trainer {

Scorer::Scorer(const TrainerConfig& config, std::int64_t length, hal::Device& device,
               const kernels::Catalog& catalog, const StoredTensors& weights)
    : length_(length), vocabulary_(layers::vocabulary(*config.model)) {
  if (config.input->source(config.sequence) > 0)
    throw Error("scoring a text", "needs a model without an encoder", "one with an encoder");
  if (length < 2)
    throw Error("scoring a text", "needs windows of at least two tokens", std::to_string(length));
  ComposeOptions options = inference_options(config);
  options.logits_batch = 1;
  options.sequence = options.logits_sequence = length;
  options.logits_row_exact = is_batch_invariant_by_default(device.info());
  if (!options.logits_row_exact)
    batch_dependence_ = "kernels of " + device.info().backend + " are chosen by sizes";
  const auto compose = [&] { return compose_inference(*config.model, options, catalog, device.info()); };
  Plan plan;
  try {
    plan = compose();
  } catch (const NotRowExact& not_row_exact) {
    batch_dependence_ = not_row_exact.what();
    options.logits_row_exact = false;
    plan = compose();
  }
  session_ = std::make_unique<Session>(device, catalog, std::move(plan));
  load_parameters(weights, *session_);
}

void Scorer::check_ids(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t id : tokens)
    if (id < 0 || id >= vocabulary_)
      throw Error("the text",
                  "token ids must be below the model's vocabulary of " + std::to_string(vocabulary_),
                  "id " + std::to_string(id));
}

std::span<const float> Scorer::run(std::span<const std::int32_t> window) {
  logits_.resize(static_cast<std::size_t>(length_ * vocabulary_));
  session_->write("logits/tokens", std::as_bytes(window));
  session_->run(Step::logits);
  session_->read("logits", std::as_writable_bytes(std::span(logits_)));
  return logits_;
}

double Scorer::logprob(std::span<const std::int32_t> tokens, std::span<const char> counted) {
  if (tokens.size() < 2 || static_cast<std::int64_t>(tokens.size()) > length_)
    throw Error("the text", "must have 2 to " + std::to_string(length_) + " tokens",
                std::to_string(tokens.size()));
  check_ids(tokens);
  std::vector<std::int32_t> window(tokens.begin(), tokens.end());
  window.resize(static_cast<std::size_t>(length_), 0);
  const std::span<const float> logits = run(window);
  const auto width = static_cast<std::size_t>(vocabulary_);
  double sum = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i)
    if (counted[i] != 0) sum += token_score(logits.subspan((i - 1) * width, width), tokens[i], 0).logprob;
  return sum;
}

std::vector<TokenScore> Scorer::score(std::span<const std::int32_t> tokens, std::int64_t stride, int top,
                                      const std::function<void(std::int64_t done)>& progress) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < length_)
    throw Error("the text", "must have at least " + std::to_string(length_) + " tokens",
                std::to_string(count));
  check_ids(tokens);
  std::vector<TokenScore> scores;
  const auto width = static_cast<std::size_t>(vocabulary_);
  for (std::int64_t begin = 0; static_cast<std::int64_t>(scores.size()) + 1 < count;
       begin = std::min(begin + std::clamp<std::int64_t>(stride, 1, length_ - 1), count - length_)) {
    const std::span<const float> logits =
        run(tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length_)));
    for (auto next = static_cast<std::int64_t>(scores.size()) + 1; next < begin + length_; ++next)
      scores.push_back(token_score(logits.subspan(static_cast<std::size_t>(next - 1 - begin) * width, width),
                                   tokens[static_cast<std::size_t>(next)], top));
    if (progress) progress(static_cast<std::int64_t>(scores.size()) + 1);
  }
  return scores;
}

}  // namespace meshloom::trainer
