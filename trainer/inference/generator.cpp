#include "trainer/inference/generator.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "hal/error.h"
#include "hal/math.h"
#include "layers/cache/kv_cache.h"
#include "layers/models/trace.h"

namespace meshloom::trainer {
namespace {

// New tokens of a program with caches: the next one, and parts of a prompt.
constexpr std::array<std::int64_t, 3> kDecodeTokens{1, 16, 128};

ModelRunnerOptions runner_options(std::int64_t sequence, std::int64_t source) {
  ModelRunnerOptions options{.length = sequence, .tokens = {}, .source = source};
  for (const std::int64_t tokens : kDecodeTokens) options.tokens.push_back(std::min(tokens, sequence));
  options.page_size = std::min(DecodeOptions{}.page_size, sequence);
  options.pages = hal::ceil_div(sequence, options.page_size);
  return options;
}

void compose_recomputation(ComposeOptions& options, std::int64_t sequence, std::int64_t source) {
  options.logits_batch = 1;
  options.logits_sequence = sequence;
  options.logits_source = source;
  options.logits_padding = true;
}

}  // namespace

std::string compose_generation(ComposeOptions& options, const layers::Config& model, std::int64_t sequence,
                               std::int64_t source, const kernels::Catalog& catalog,
                               const hal::DeviceInfo& device) {
  const ModelRunnerOptions runner = runner_options(sequence, source);
  try {
    layers::trace_decode(
        model, catalog,
        {.length = sequence, .page_size = runner.page_size, .pages = runner.pages, .source = source});
  } catch (const layers::NoCache& no_cache) {
    compose_recomputation(options, sequence, source);
    return no_cache.what();
  }
  options.decode = decode_options(runner, device);
  return "";
}

Generator::Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source,
                     Session& session)
    : length_(sequence),
      source_(source),
      vocabulary_(layers::vocabulary(*config.model)),
      others_change_parameters_(true),
      session_(&session) {
  const ModelRunnerOptions options = runner_options(sequence, source);
  if (session.plan().steps.has({Step::decode, static_cast<int>(options.tokens.front())}))
    use(std::make_unique<ModelRunner>(config, options, session), options.pages);
  else
    recomputes_ = "its plan has no program with caches";
}

Generator::Generator(const TrainerConfig& config, std::int64_t sequence, std::int64_t source,
                     hal::Device& device, const kernels::Catalog& catalog, const StoredTensors& weights)
    : length_(sequence), source_(source), vocabulary_(layers::vocabulary(*config.model)) {
  try {
    const ModelRunnerOptions options = runner_options(sequence, source);
    use(std::make_unique<ModelRunner>(config, options, device, catalog, weights), options.pages);
    return;
  } catch (const layers::NoCache& no_cache) {
    recomputes_ = no_cache.what();
  }
  ComposeOptions options = inference_options(config);
  options.sequence = sequence;
  compose_recomputation(options, sequence, source);
  own_ = std::make_unique<Session>(device, catalog,
                                   compose_inference(*config.model, options, catalog, device.info()));
  session_ = own_.get();
  load_parameters(weights, *own_);
}

void Generator::use(std::unique_ptr<ModelRunner> runner, std::int64_t pages) {
  runner_ = std::move(runner);
  sequence_.pages.resize(static_cast<std::size_t>(pages));
  std::iota(sequence_.pages.begin(), sequence_.pages.end(), 0);
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

void Generator::write(const std::string& name, Ids ids) {
  Ids& before = written_[name];
  if (before == ids) return;
  session_->write(name, std::as_bytes(std::span(ids)));
  before = std::move(ids);
}

std::span<const float> Generator::recompute(const Prompt& prompt, std::span<const std::int32_t> prefix) {
  const auto padded = [](Ids ids, std::int64_t length) {
    ids.resize(static_cast<std::size_t>(length), 0);
    return ids;
  };
  if (source_ > 0) {
    write("logits/source", padded(prompt.source, source_));
    write("logits/source_segments", padded(Ids(prompt.source.size(), 1), source_));
  }
  // Padding follows the prefix; no token attends to it.
  write("logits/tokens", padded({prefix.begin(), prefix.end()}, length_));
  write("logits/segments", padded(Ids(prefix.size(), 1), length_));
  session_->run(Step::logits);
  logits_.resize(static_cast<std::size_t>(length_ * vocabulary_));
  session_->read("logits", std::as_writable_bytes(std::span(logits_)));
  const auto width = static_cast<std::size_t>(vocabulary_);
  return std::span(logits_).subspan((prefix.size() - 1) * width, width);
}

std::span<const float> Generator::advance(std::span<const std::int32_t> prefix) {
  const auto kept = sequence_.tokens.begin() + sequence_.computed;
  const auto same = std::mismatch(sequence_.tokens.begin(), kept, prefix.begin(), prefix.end()).first;
  // The logits of the last token are wanted, so that at least that one is computed.
  sequence_.computed = runner_->kept(
      sequence_,
      std::min<std::int64_t>(same - sequence_.tokens.begin(), static_cast<std::int64_t>(prefix.size()) - 1));
  sequence_.tokens.assign(prefix.begin(), prefix.end());
  std::span<const float> logits;
  while (sequence_.pending() > 0) {
    const std::int64_t count = std::min(sequence_.pending(), runner_->max_tokens());
    const Chunk chunk{&sequence_, count, count == sequence_.pending() ? 1 : 0};
    logits = runner_->run({&chunk, 1});
    sequence_.computed += count;
  }
  return logits;
}

std::vector<std::int32_t> Generator::generate(const Prompt& prompt, std::int64_t count,
                                              const SamplerOptions& options,
                                              const std::function<bool(std::int32_t)>& each) {
  trainer::check(options);
  check(prompt);
  written_.clear();  // another generator of the session may have written since
  if (runner_ && (others_change_parameters_ || prompt.source != read_)) {
    sequence_.tokens.clear();
    sequence_.computed = 0;
    if (source_ > 0) runner_->encode(sequence_, prompt.source);
    read_ = prompt.source;
  }
  Ids text = prompt.tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t used = std::min(text.size(), static_cast<std::size_t>(length_));
    const std::span<const std::int32_t> prefix = std::span(text).last(used);
    const std::span<const float> next = runner_ ? advance(prefix) : recompute(prompt, prefix);
    const std::int32_t token = sample_token(next, options, static_cast<std::int64_t>(text.size()));
    text.push_back(token);
    if (each && !each(token)) break;
  }
  return text;
}

}  // namespace meshloom::trainer
