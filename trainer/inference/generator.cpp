#include "trainer/inference/generator.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "hal/error.h"
#include "layers/cache/kv_cache.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_tensors.h"

namespace meshloom::trainer {
namespace {

// New tokens of a program with caches: the next one, and parts of a prompt.
constexpr std::array<std::int64_t, 3> kDecodeTokens{1, 16, 128};

}  // namespace

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
      recomputes_("its plan has no program with caches"),
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
  for (const std::int64_t tokens : kDecodeTokens) decode_tokens_.insert(std::min(tokens, sequence));
  const auto compose = [&] {
    ComposeOptions decode = options;
    decode.decode.length = sequence;
    decode.decode.tokens.assign(decode_tokens_.begin(), decode_tokens_.end());
    try {
      return compose_inference(*config.model, decode, catalog, device.info());
    } catch (const layers::NoCache& no_cache) {
      recomputes_ = no_cache.what();
    }
    compose_generation(options, sequence, source);
    return compose_inference(*config.model, options, catalog, device.info());
  };
  Plan plan = compose();
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
  write("logits/tokens", padded({prefix.begin(), prefix.end()}, sequence_));
  write("logits/segments", padded(Ids(prefix.size(), 1), sequence_));
  session_->run(Step::logits);
  logits_.resize(static_cast<std::size_t>(sequence_ * vocabulary_));
  session_->read("logits", std::as_writable_bytes(std::span(logits_)));
  const auto width = static_cast<std::size_t>(vocabulary_);
  return std::span(logits_).subspan((prefix.size() - 1) * width, width);
}

// Runs the new tokens of the one sequence, whose first stands at position `first`. Its pages are those of the pool in order.
void Generator::run_decode(std::span<const std::int32_t> tokens, std::int64_t first) {
  const std::int64_t size = *decode_tokens_.lower_bound(static_cast<std::int64_t>(tokens.size()));
  const ProgramKey step(Step::decode, static_cast<int>(size));
  const std::string name = "decode/" + std::to_string(size) + "/";
  const auto count = static_cast<std::int32_t>(tokens.size());
  const auto padded = [&](auto of, std::int32_t padding) {
    Ids ids(static_cast<std::size_t>(size), padding);
    for (std::int32_t i = 0; i < count; ++i) ids[static_cast<std::size_t>(i)] = of(i);
    return ids;
  };
  const auto position = [&](std::int32_t i) { return static_cast<std::int32_t>(first) + i; };
  write(name + "tokens", padded([&](std::int32_t i) { return tokens[static_cast<std::size_t>(i)]; }, 0));
  write(name + "positions", padded(position, 0));
  write(name + "segments", padded([](std::int32_t) { return 1; }, 0));
  write(name + "slots", padded(position, -1));
  Ids pages(static_cast<std::size_t>(session_->plan().persistent_types.at(name + "page_table").elements()));
  std::iota(pages.begin(), pages.end(), 0);
  write(name + "page_table", std::move(pages));
  write(name + "query_starts", {0, count});
  write(name + "lengths", {position(count)});
  write(name + "rows", {count - 1});
  session_->run(step);
  logits_.resize(static_cast<std::size_t>(vocabulary_));
  session_->read(name + "logits", std::as_writable_bytes(std::span(logits_)));
}

std::span<const float> Generator::advance(std::span<const std::int32_t> prefix) {
  const auto [kept, fresh] = std::mismatch(kept_.begin(), kept_.end(), prefix.begin(), prefix.end());
  // The logits of the last token are wanted, so that at least that one is computed.
  std::size_t at = std::min(static_cast<std::size_t>(kept - kept_.begin()), prefix.size() - 1);
  const auto most = static_cast<std::size_t>(*decode_tokens_.rbegin());
  kept_.resize(at);  // what follows is overwritten
  while (at < prefix.size()) {
    const std::size_t count = std::min(prefix.size() - at, most);
    run_decode(prefix.subspan(at, count), static_cast<std::int64_t>(at));
    at += count;
  }
  kept_.assign(prefix.begin(), prefix.end());
  return logits_;
}

std::vector<std::int32_t> Generator::generate(const Prompt& prompt, std::int64_t count,
                                              const SamplerOptions& options,
                                              const std::function<bool(std::int32_t)>& each) {
  trainer::check(options);
  check(prompt);
  written_.clear();  // another generator of the session may have written since
  Ids text = prompt.tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t used = std::min(text.size(), static_cast<std::size_t>(sequence_));
    const std::span<const std::int32_t> prefix = std::span(text).last(used);
    const std::span<const float> next = recomputes_.empty() ? advance(prefix) : recompute(prompt, prefix);
    const std::int32_t token = sample_token(next, options, static_cast<std::int64_t>(text.size()));
    text.push_back(token);
    if (each && !each(token)) break;
  }
  return text;
}

}  // namespace meshloom::trainer
