// Scores the tokens of a text by Step::logits: a window of the text at once, without caches. The engine's scores of the same tokens have
// the same bits on devices whose attention has the same order of sums in both (the CPU, in f32). Kernels are those that promise
// Variant::row_exact, where there are such; training takes faster ones for matrix products.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"
#include "kernels/core/catalog.h"
#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/execute/session.h"
#include "trainer/inference/request.h"

namespace meshloom::trainer {

class Scorer {
 public:
  // Composes a program for windows of `length` tokens and reads the parameters from `weights`. The device and the catalog must
  // outlive the scorer. Throws Error for a model with an encoder and for a length below 2, and what compose_inference() throws.
  Scorer(const TrainerConfig& config, std::int64_t length, hal::Device& device,
         const kernels::Catalog& catalog, const StoredTensors& weights);

  // The scores of tokens[1], tokens[2], ..., with the `top` most probable tokens each. A text longer than a window is read in windows
  // that begin `stride` tokens apart, the last one at the text's end; a token is scored in the first that has it. Calls progress(tokens
  // that are scored). Throws Error for fewer than `length` tokens, and for ids that the model does not
  // have.
  std::vector<TokenScore> score(std::span<const std::int32_t> tokens, std::int64_t stride, int top,
                                const std::function<void(std::int64_t done)>& progress = {});
  // The sum of the log-probabilities of the tokens that `counted` marks, of a text of 2 to `length` tokens. The model must read from
  // front to back, as what fills the window stands behind the text. Throws Error for ids that the model does not have.
  double logprob(std::span<const std::int32_t> tokens, std::span<const char> counted);
  // Why scores can depend on the text's length, in rounding; "" = they do not.
  const std::string& batch_dependence() const { return batch_dependence_; }

 private:
  void check_ids(std::span<const std::int32_t> tokens) const;
  // Computes the logits of a window, and returns them: those of a token are a row.
  std::span<const float> run(std::span<const std::int32_t> window);

  std::int64_t length_, vocabulary_;
  std::string batch_dependence_;
  std::unique_ptr<Session> session_;
  std::vector<float> logits_;  // of the last window
};

}  // namespace meshloom::trainer
