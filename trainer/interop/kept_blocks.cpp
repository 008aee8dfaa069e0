#include "trainer/interop/kept_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "layers/block/heterogeneous_stack.h"
#include "layers/block/unused_overrides.h"
#include "layers/config/select.h"
#include "layers/config/tree.h"
#include "layers/core/linear.h"
#include "layers/quantized/block_quantized_embedding.h"
#include "layers/quantized/block_quantized_linear.h"

namespace meshloom::trainer {
namespace {

using layers::Config;
using Made = std::unique_ptr<Config>;

// Where a weight is in the tree of configs: below it, or below each layer of a stack.
struct WeightPlace {
  std::string stack;        // "decoder.stack"; "" = below no stack
  std::int64_t layer = -1;  // of the stack
  std::string node;         // "attention.q_proj", from the layer; "decoder.embedding", from the model
};

// Of "decoder/stack/layer3/attention/q_proj/weight"; the node is "" for what is no weight.
WeightPlace place_of(std::string parameter) {
  constexpr std::string_view kWeight = "/weight", kLayer = ".layer";
  WeightPlace place;
  if (!parameter.ends_with(kWeight)) return place;
  parameter.resize(parameter.size() - kWeight.size());
  std::replace(parameter.begin(), parameter.end(), '/', '.');
  const std::size_t at = parameter.find(kLayer);
  if (at != std::string::npos) {
    const char* end = parameter.data() + parameter.size();
    const auto read = std::from_chars(parameter.data() + at + kLayer.size(), end, place.layer);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != '.') return {};
    place.stack = parameter.substr(0, at);
    place.node = std::string(read.ptr + 1, end);
  } else {
    place.node = parameter;
  }
  return place;
}

const Config* node_at(const Config& root, const std::string& path) {
  const Config* found = nullptr;
  layers::visit(root, [&](const std::string& at, const Config& node) {
    if (at == path) found = &node;
  });
  return found;
}

// The layer that keeps blocks of this format in place of `node`; null where it has no such form.
Made keeping(const Config& node, const std::string& format) {
  if (const auto* linear = dynamic_cast<const layers::Linear::Config*>(&node)) {
    layers::BlockQuantizedLinear::Config made;
    made.bias = linear->bias;
    made.init = linear->init;
    made.blocks.format = format;
    return made.clone();
  }
  if (const auto* embedding = dynamic_cast<const layers::Embedding::Config*>(&node)) {
    layers::BlockQuantizedEmbedding::Config made;
    made.init = embedding->init;
    made.blocks.format = format;
    return made.clone();
  }
  return nullptr;
}

void replace_node(Config& root, const std::string& path, const Config& by) {
  layers::replace_at(root, {path}, [&](const Config&, const std::string&) { return by.clone(); });
}

// Gives the node below each layer of the stack what `wanted` has for it; nullptr = it stays. What most layers want becomes that of
// every layer, and the others get overrides.
void replace_in_layers(layers::HeterogeneousStack::Config& stack, const std::string& node,
                       const std::vector<Made>& wanted) {
  std::map<std::string, std::vector<std::int64_t>> layers_by_text;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) layers_by_text[layers::print(*wanted[i])].push_back(static_cast<std::int64_t>(i));
  const auto most_common =
      std::max_element(layers_by_text.begin(), layers_by_text.end(),
                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto config_for = [&](const auto& entry) -> const Config& {
    return *wanted[static_cast<std::size_t>(entry.second.front())];
  };
  if (node_at(*stack.layer, node)) replace_node(*stack.layer, node, config_for(*most_common));
  std::map<std::string, std::vector<std::int64_t>> other;
  for (const auto& [text, indices] : layers_by_text)
    for (const std::int64_t index : indices)
      if (layers::print(*node_at(*stack.layer_at(index), node)) != text) other[text].push_back(index);
  for (const auto& entry : other) {
    layers::LayerOverride change;
    change.where = node;
    change.with.reset(config_for(entry).clone());
    change.layers = entry.second;
    stack.overrides.push_back(change);
  }
}

}  // namespace

void keep_blocks(layers::CausalLM::Config& model, const std::vector<NamedTensor>& parameters,
                 const std::function<std::string(const std::string& parameter)>& format_of,
                 std::int64_t in_blocks, const Note& note) {
  std::map<std::pair<std::string, std::string>, std::map<std::int64_t, std::string>> formats;
  std::int64_t kept = 0;
  for (const NamedTensor& parameter : parameters) {
    const std::string format = format_of(parameter.name);
    if (format.empty()) continue;
    const WeightPlace place = place_of(parameter.name);
    formats[{place.stack, place.node}][place.layer] = format;
  }
  std::map<std::string, layers::HeterogeneousStack::Config> stacks;
  for (const auto& [where, by_layer] : formats) {
    const auto& [path, node] = where;
    if (node.empty()) continue;
    if (path.empty()) {
      const Config* old = node_at(model, node);
      const Made made = old ? keeping(*old, by_layer.begin()->second) : nullptr;
      if (!made) continue;
      replace_node(model, node, *made);
      ++kept;
      continue;
    }
    const auto* old = dynamic_cast<const layers::Stack::Config*>(node_at(model, path));
    if (!old || (old->class_name() != "Stack" && old->class_name() != "HeterogeneousStack")) continue;
    auto it = stacks.find(path);
    if (it == stacks.end()) {
      layers::HeterogeneousStack::Config stack;
      if (const auto* same = dynamic_cast<const layers::HeterogeneousStack::Config*>(old)) stack = *same;
      stack.num_layers = old->num_layers;
      stack.layer = old->layer;
      it = stacks.emplace(path, std::move(stack)).first;
    }
    std::vector<Made> wanted(static_cast<std::size_t>(old->num_layers.get()));
    std::int64_t here = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const layers::Child<layers::Layer::Config> layer = it->second.layer_at(static_cast<std::int64_t>(i));
      const Config* at = node_at(*layer, node);
      if (!at) continue;
      if (const auto format = by_layer.find(static_cast<std::int64_t>(i)); format != by_layer.end())
        if ((wanted[i] = keeping(*at, format->second))) ++here;
      if (!wanted[i]) wanted[i] = at->clone();
    }
    if (here > 0) replace_in_layers(it->second, node, wanted);
    kept += here;
  }
  for (const auto& [path, stack] : stacks) replace_node(model, path, stack);
  layers::remove_unused_overrides(model);
  if (in_blocks == 0)
    note("the file has no weights in blocks; all are stored in f32");
  else if (kept < in_blocks)
    note(fmt::format("{} of {} weights in blocks are stored in f32, as their layers cannot keep blocks",
                     in_blocks - kept, in_blocks));
}

}  // namespace meshloom::trainer
