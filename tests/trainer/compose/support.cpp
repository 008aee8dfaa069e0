#include "tests/trainer/compose/support.h"

#include <cctype>
#include <random>
#include <span>
#include <utility>

#include "hal/wrappers/checked_device.h"
#include "layers/config/tree.h"
#include "tests/kernels/interpret.h"

namespace meshloom::tests {

Build::Build() {
  kernels::add_contracts(catalog);
  register_backends(registry, catalog);
}

const Build& build() {
  static const Build here;
  return here;
}

std::vector<std::string> computing_devices() {
  std::vector<std::string> ids;
  for (const hal::BackendDevices& found : build().registry.enumerate())
    if (!found.devices.empty() && found.backend != "null") ids.push_back(found.devices.front().id);
  return ids;
}

std::string plain_name(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

layers::CausalLM::Config tiny_llama() {
  return layers::llama_config(
      {.vocab = 19, .dim = 16, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = true});
}

layers::CausalLM::Config tiny_gpt2() {
  return layers::gpt2_config({.vocab = 19, .dim = 16, .layers = 2, .heads = 2, .context = 12});
}

layers::CausalLM::Config of_experts(layers::CausalLM::Config model) {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  layers::replace(model, "FeedForward", "MoE{num_experts=3 gating=TopK{k=3 regularizers=[]}}", classes);
  return model;
}

trainer::AdamW::Config adamw(double rate) {
  trainer::AdamW::Config config;
  config.peak_learning_rate = rate;
  return config;
}

Batch random_batch(std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Batch batch;
  for (std::int64_t i = 0; i < rows * sequence; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary)));
    const bool ignored = random() % 5 == 0;
    const auto target = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
    batch.targets.push_back(ignored ? -1 : target);
  }
  return batch;
}

std::vector<kernels::HostTensor> interpret(const kernels::Program& program, const kernels::Catalog& catalog,
                                           const Memory& inputs) {
  Values given;
  for (kernels::ValueId id : program.inputs) given.emplace(id, inputs.at(program.value(id).name));
  std::vector<kernels::HostTensor> values(program.values.size());
  for (auto& [id, value] : interpret(program, catalog, std::move(given)))
    values[static_cast<std::size_t>(id)] = std::move(value);
  return values;
}

Bench::Bench(const std::string& id, const std::string& profile)
    : device(hal::checked(build().registry.open(id, profile))) {}

void Bench::start(trainer::Plan plan, std::uint64_t seed) {
  session = std::make_unique<trainer::Session>(*device, catalog(), std::move(plan));
  trainer::initialize(*session, seed);
}

void Bench::feed(const Batch& batch) {
  session->write("tokens", std::as_bytes(std::span(batch.tokens)));
  session->write("targets", std::as_bytes(std::span(batch.targets)));
}

void Bench::set_rate(float rate) { session->write("lr", std::as_bytes(std::span(&rate, 1))); }

std::vector<float> Bench::read(const std::string& name) {
  const kernels::TensorType& type = session->plan().persistent_types.at(name);
  std::vector<float> values(static_cast<std::size_t>(type.elements()));
  session->read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

trainer::ComposeOptions small_options() {
  trainer::ComposeOptions options;
  options.batch = 4;
  options.sequence = 6;
  return options;
}

}  // namespace meshloom::tests
