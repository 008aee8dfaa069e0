#include "trainer/inference/generator.h"

#include <algorithm>
#include <span>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_tensors.h"

namespace meshloom::trainer {

void compose_generation(ComposeOptions& options, std::int64_t sequence, std::int64_t source) {
  options.logits_batch = 1;
  options.logits_sequence = sequence;
  options.logits_source = source;
  options.logits_padding = true;
}

Generator::Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source,
                     Session& session)
    : sequence_(sequence),
      source_(source),
      vocabulary_(layers::vocabulary(*config.model)),
      session_(&session) {}

Generator::Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source,
                     hal::Device& device, const kernels::Catalog& catalog, const StoredTensors& weights)
    : sequence_(sequence), source_(source), vocabulary_(layers::vocabulary(*config.model)) {
  ComposeOptions options = config.compose_options();
  options.batch = options.accumulation = 1;
  options.sequence = sequence;
  options.remat.clear();  // no backward pass
  options.mesh.clear();   // on one rank
  options.shares.clear();
  options.evaluation = false;
  compose_generation(options, sequence, source);
  Plan plan = compose_inference(*config.model, options, catalog, device.info());
  const std::vector<NamedTensor> wanted = model_tensors(plan);
  own_ = std::make_unique<Session>(device, catalog, std::move(plan));
  session_ = own_.get();
  load_tensors(weights, wanted, [&](const std::string& name, std::span<const std::byte> data) {
    session_->write(name, data);
  });
}

void Generator::check(const Prompt& prompt) const {
  if (prompt.tokens.empty() || prompt.source.empty() != (source_ == 0))
    throw Error("prompt",
                "must hold at least one token" + std::string(source_ ? ", and its source at least one" : ""),
                prompt.tokens.empty() ? "none" : std::to_string(prompt.source.size()) + " in the source");
  for (const auto* ids : {&prompt.tokens, &prompt.source})
    for (const std::int32_t id : *ids)
      if (id < 0 || id >= vocabulary_)
        throw Error("prompt",
                    "token ids must be below the model's vocabulary of " + std::to_string(vocabulary_),
                    "id " + std::to_string(id));
  if (static_cast<std::int64_t>(prompt.source.size()) > source_)
    throw Error("prompt", "must hold at most " + std::to_string(source_) + " tokens in its source",
                std::to_string(prompt.source.size()));
}

std::vector<std::int32_t> Generator::generate(const Prompt& prompt, std::int64_t count,
                                              const SamplerOptions& options,
                                              const std::function<bool(std::int32_t)>& each) {
  trainer::check(options);
  check(prompt);
  std::vector<std::int32_t> text = prompt.tokens;
  const auto write = [&](const char* name, std::vector<std::int32_t> ids, std::int64_t length) {
    ids.resize(static_cast<std::size_t>(length), 0);
    session_->write(name, std::as_bytes(std::span(ids)));
  };
  if (source_ > 0) {
    write("logits/source", prompt.source, source_);
    write("logits/source_segments", std::vector<std::int32_t>(prompt.source.size(), 1), source_);
  }
  // Padding follows the prefix; no token attends to it.
  std::vector<std::int32_t> window(static_cast<std::size_t>(sequence_));
  std::vector<float> logits(static_cast<std::size_t>(sequence_ * vocabulary_));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto used = std::min<std::int64_t>(static_cast<std::int64_t>(text.size()), sequence_);
    std::fill(window.begin(), window.end(), 0);
    std::copy(text.end() - used, text.end(), window.begin());
    session_->write("logits/tokens", std::as_bytes(std::span(window)));
    write("logits/segments", std::vector<std::int32_t>(static_cast<std::size_t>(used), 1), sequence_);
    session_->run(Step::logits);
    session_->read("logits", std::as_writable_bytes(std::span(logits)));
    const std::span<const float> last(logits.data() + (used - 1) * vocabulary_,
                                      static_cast<std::size_t>(vocabulary_));
    const std::int32_t token = sample_token(last, options, static_cast<std::int64_t>(text.size()));
    text.push_back(token);
    if (each && !each(token)) break;
  }
  return text;
}

}  // namespace meshloom::trainer
