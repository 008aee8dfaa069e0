#include "trainer/interop/families/dense_layers.h"

#include <algorithm>
#include <vector>

#include "hal/error.h"
#include "layers/block/heterogeneous_stack.h"
#include "layers/config/tree.h"
#include "layers/moe/moe.h"
#include "trainer/interop/families/family.h"
#include "trainer/interop/families/json_fields.h"
#include "trainer/interop/families/overrides.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr const char *kStep = "decoder_sparse_step", *kOnly = "mlp_only_layers",
                     *kHidden = "intermediate_size";

bool has_experts(const layers::Config& layer) {
  return layers::get(layer, "feed_forward").starts_with("MoE");
}

// Layers that decoder_sparse_step skips, counted from 0.
std::vector<bool> passed_over(std::int64_t step, std::int64_t count) {
  std::vector<bool> dense;
  for (std::int64_t i = 0; i < count; ++i) dense.push_back((i + 1) % step != 0);
  return dense;
}

}  // namespace

bool is_dense_layer_field(const std::string& name) {
  return name == kStep || name == kOnly || name == kHidden;
}

void read_dense_layers(const Json& json, const std::string& where, std::int64_t absent,
                       layers::CausalLM::Config& model) {
  const auto& stack = *model.decoder->stack.as<layers::Stack::Config>();
  const std::int64_t count = stack.num_layers;
  const Json* only = json_field(json, kOnly);
  std::vector<bool> dense =
      passed_over(json.contains(kStep) ? json_length(json[kStep], kStep, where) : 1, count);
  const std::string rule = "must be a list of layers, from 0 to " + std::to_string(count - 1);
  if (only && !only->is_array()) throw Error(where + ", field " + kOnly, rule, shown_json(*only));
  for (const Json& layer : only ? *only : Json::array()) {
    std::int64_t index = 0;
    if (!natural(layer, index) || index >= count)
      throw Error(where + ", field " + kOnly, rule, shown_json(layer));
    dense[static_cast<std::size_t>(index)] = true;
  }
  layers::FeedForward::Config plain = *llama_layer(model).feed_forward.as<layers::MoE::Config>();
  plain.hidden_dim = json.contains(kHidden) ? json_length(json[kHidden], kHidden, where) : absent;
  if (std::count(dense.begin(), dense.end(), true) > 0) override_layers(model, "feed_forward", plain, dense);
}

void write_dense_layers(const layers::Config& model, nlohmann::ordered_json& json) {
  std::vector<bool> dense;
  std::vector<std::int64_t> named;
  for (const layers::Child<layers::Layer::Config>& layer : layers_of(model)) {
    dense.push_back(!has_experts(*layer));
    if (!dense.back()) continue;
    const std::int64_t hidden = std::stoll(layers::get(*layer, "feed_forward.hidden_dim"));
    if (!named.empty() && json[kHidden] != hidden)
      throw Error("decoder.stack", "must have feed-forwards of one size in the layers without experts",
                  json[kHidden].dump() + " and " + std::to_string(hidden));
    json[kHidden] = hidden;
    named.push_back(static_cast<std::int64_t>(dense.size()) - 1);
  }
  const auto count = static_cast<std::int64_t>(dense.size());
  std::int64_t step = 1;
  while (step < count && passed_over(step, count) != dense) ++step;
  const bool regular = passed_over(step, count) == dense;
  json[kStep] = regular ? step : 1;
  json[kOnly] = regular ? std::vector<std::int64_t>{} : named;
}

std::unique_ptr<layers::Config> from_sparse_layer(const layers::Config& model) {
  std::unique_ptr<layers::Config> copy = model.clone();
  auto* lm = dynamic_cast<layers::CausalLM::Config*>(copy.get());
  auto* stack = lm ? lm->decoder->stack.as<layers::HeterogeneousStack::Config>() : nullptr;
  if (!stack) return copy;
  for (std::int64_t i = 0; i < stack->num_layers; ++i)
    if (layers::Child<layers::Layer::Config> layer = stack->layer_at(i); has_experts(*layer)) {
      stack->layer = layer;
      break;
    }
  return copy;
}

}  // namespace meshloom::trainer
