#include "tests/trainer/inference/support.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "hal/wrappers/checked_device.h"
#include "trainer/io/safetensors.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

struct Backends {
  hal::Registry registry;
  kernels::Catalog catalog;
  Backends() {
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
  }
};

const Backends& backends() {
  static const Backends here;
  return here;
}

}  // namespace

const hal::Registry& inference_registry() { return backends().registry; }
const kernels::Catalog& inference_catalog() { return backends().catalog; }

trainer::StoredTensors stored_weights(
    const trainer::TrainerConfig& config,
    const std::function<void(const layers::ParameterInfo&, std::vector<float>&)>& values_of) {
  const layers::Traced traced = layers::trace_logits(*config.model, inference_catalog(), 1, 1);
  std::vector<trainer::StoredTensor> tensors;
  for (const layers::ParameterInfo& parameter : traced.parameters)
    tensors.push_back({parameter.path, "F32", parameter.type.shape});
  const std::string header = trainer::safetensors_header(tensors, {});
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("meshloom-inference-" + std::to_string(::getpid()) + ".safetensors");
  std::ofstream file(path, std::ios::binary);
  file << header;
  for (const layers::ParameterInfo& parameter : traced.parameters) {
    std::vector<float> values(static_cast<std::size_t>(parameter.type.elements()));
    values_of(parameter, values);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  file.close();
  trainer::StoredTensors stored{trainer::SafetensorsFile(path.string())};
  std::filesystem::remove(path);  // it stays open
  return stored;
}

trainer::StoredTensors random_weights(const trainer::TrainerConfig& config, std::int32_t poisoned,
                                      std::uint64_t seed) {
  return stored_weights(config, [&](const layers::ParameterInfo& parameter, std::vector<float>& values) {
    parameter.initialize(seed, values.data());
    if (parameter.type.shape.size() > 1)
      for (float& value : values) value *= 3;
    if (poisoned >= 0 && parameter.path.find("embedding") != std::string::npos)
      std::fill_n(values.begin() + poisoned * parameter.type.shape.back(), parameter.type.shape.back(),
                  std::nanf(""));
  });
}

TinyModel::TinyModel(const std::string& id)
    : config(trainer::tiny()),
      weights(random_weights(config)),
      device(hal::checked(inference_registry().open(id))) {}

void TinyModel::initialize(std::uint64_t seed) { weights = random_weights(config, -1, seed); }

void TinyModel::poison(std::int32_t token) { weights = random_weights(config, token); }

void RecordedEvents::on_prompt(std::span<const trainer::TokenScore> scores) {
  ++prompts;
  prompt.assign(scores.begin(), scores.end());
}

bool RecordedEvents::on_token(const trainer::TokenScore& token) {
  tokens.push_back(token);
  return !each || each(token.id);
}

void RecordedEvents::on_finish(trainer::FinishReason reason, const trainer::Usage& used,
                               const std::string& message) {
  const std::lock_guard lock(mutex_);
  ++ends;
  usage = used;
  error = message;
  reason_ = reason;
  ended_.notify_all();
}

trainer::FinishReason RecordedEvents::reason() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return reason_.has_value(); });
  return *reason_;
}

std::vector<std::int32_t> RecordedEvents::ids() {
  reason();
  std::vector<std::int32_t> ids;
  for (const trainer::TokenScore& token : tokens) ids.push_back(token.id);
  return ids;
}

std::shared_ptr<RecordedEvents> send(trainer::EngineClient& engine, trainer::Request request,
                                     trainer::RequestId* id) {
  auto heard = std::make_shared<RecordedEvents>();
  request.events = heard;
  const trainer::RequestId given = engine.submit(std::move(request));
  if (id) *id = given;
  return heard;
}

void finish_all(trainer::Engine& engine) {
  while (engine.step()) {
  }
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::uint64_t seed, std::int64_t vocabulary) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

}  // namespace meshloom::tests
