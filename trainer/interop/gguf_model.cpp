#include "trainer/interop/gguf_model.h"

#include <algorithm>
#include <map>

#include "hal/error.h"
#include "trainer/interop/gguf_config.h"
#include "trainer/io/gguf_blocks.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kMaxExperts = 4096;

// "blk.12.attn_q.weight" as "blk.{i}.attn_q.weight" and "12".
std::pair<std::string, std::string> without_layer(const std::string& name) {
  constexpr std::string_view kFront = "blk.";
  if (!name.starts_with(kFront)) return {name, ""};
  const std::size_t dot = name.find('.', kFront.size());
  const std::string layer = name.substr(kFront.size(), dot - kFront.size());
  const bool plain = !layer.empty() && layer.size() <= 6 && (layer == "0" || layer[0] != '0') &&
                     layer.find_first_not_of("0123456789") == std::string::npos;
  if (dot == std::string::npos || !plain) return {name, ""};
  return {"blk.{i}" + name.substr(dot), layer};
}

std::string filled(std::string text, std::string_view mark, const std::string& with) {
  if (const std::size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), with);
  return text;
}

}  // namespace

GgufModel::GgufModel(const std::string& path) : file_(path), config_(config_of_gguf(file_)) {
  std::map<std::string, GgufName> rules;
  for (GgufName& name : gguf_names(config_["model_type"])) rules.emplace(name.gguf, name);
  const char* count = config_.contains("num_experts") ? "num_experts" : "num_local_experts";
  const std::int64_t experts = config_.value(count, std::int64_t{0});
  if (experts > kMaxExperts)
    throw Error("'" + path + "', expert_count", "must be at most " + std::to_string(kMaxExperts),
                std::to_string(experts));
  for (const GgufTensor& tensor : file_.tensors()) {
    if (is_gguf_rope_tensor(config_["model_type"], tensor.name)) continue;  // the config has it
    const auto [pattern, layer] = without_layer(tensor.name);
    const auto rule = rules.find(pattern);
    if (rule == rules.end()) {  // an import refuses what belongs to no model
      entries_.emplace(tensor.name, Entry{&tensor});
      continue;
    }
    const std::string name = filled(rule->second.hf, "{i}", layer);
    if (rule->second.change != GgufChange::experts) {
      entries_.emplace(name, Entry{&tensor, rule->second.change});
      continue;
    }
    if (tensor.shape.size() != 3 || tensor.shape[0] != experts)
      throw Error("'" + path + "', tensor " + shown(tensor.name),
                  "must have three dimensions, one of them of " + std::to_string(experts) + " experts",
                  std::to_string(tensor.shape[0]));
    for (std::int64_t expert = 0; expert < experts; ++expert)
      entries_.emplace(filled(name, "{e}", std::to_string(expert)),
                       Entry{&tensor, GgufChange::experts, expert});
  }
  if (entries_.empty()) throw Error("'" + path + "'", "must hold at least one tensor", "none");
}

std::vector<std::string> GgufModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::optional<TensorSource::Info> GgufModel::find(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return std::nullopt;
  const Entry& entry = it->second;
  Info info{std::string(entry.tensor->block->name), entry.tensor->shape, true};
  if (entry.expert >= 0) info.shape.erase(info.shape.begin());
  if (entry.change == GgufChange::transposed) std::reverse(info.shape.begin(), info.shape.end());
  return info;
}

std::string GgufModel::file_of(std::string_view) const { return "'" + file_.path() + "'"; }

std::string GgufModel::place(std::string_view name) const {
  const auto it = entries_.find(name);
  return file_of(name) + ", tensor " + shown(it == entries_.end() ? name : it->second.tensor->name);
}

std::int64_t GgufModel::heads(const Entry& entry) const {
  const char* key = entry.change == GgufChange::query ? "num_attention_heads" : "num_key_value_heads";
  const auto heads = config_[key].get<std::int64_t>();
  if (heads < 1 || entry.tensor->shape[0] % heads != 0 || entry.tensor->shape[0] / heads % 2 != 0)
    throw Error("'" + file_.path() + "', tensor " + shown(entry.tensor->name),
                "must have an even number of rows for each of " + std::to_string(heads) + " heads",
                std::to_string(entry.tensor->shape[0]));
  return heads;
}

void GgufModel::read(std::string_view name, std::vector<float>& into) const {
  const Entry& entry = entries_.find(name)->second;
  const GgufTensor& tensor = *entry.tensor;
  std::int64_t bytes = tensor.bytes(), elements = tensor.elements(), offset = 0;
  if (entry.expert >= 0) {
    bytes /= tensor.shape[0];
    elements /= tensor.shape[0];
    offset = entry.expert * bytes;
  }
  std::vector<std::byte> stored(static_cast<std::size_t>(bytes));
  file_.read(tensor, offset, stored);
  into.resize(static_cast<std::size_t>(elements));
  dequantize(*tensor.block, stored, into);
  const std::int64_t row = tensor.shape.back();
  switch (entry.change) {
    case GgufChange::none:
    case GgufChange::experts:
      break;
    case GgufChange::query:
    case GgufChange::key:
      into = unpair_rows<float>(into, heads(entry), tensor.shape.size() > 1 ? row : 1);
      break;
    case GgufChange::norm:
      for (float& value : into) value -= 1;
      break;
    case GgufChange::transposed:
      if (tensor.shape.size() == 2) into = transposed(into, tensor.shape[0], row);
      break;
  }
}

bool GgufModel::in_blocks(std::string_view name) const {
  return entries_.find(name)->second.tensor->block->elements > 1;
}

std::string GgufModel::block_format(std::string_view name) const {
  const Entry& entry = entries_.find(name)->second;
  const bool rows_are_kept = entry.change == GgufChange::none || entry.change == GgufChange::query ||
                             entry.change == GgufChange::key;
  const auto* format = trainer::block_format(*entry.tensor->block);
  if (!format || entry.tensor->shape.size() != 2 || !rows_are_kept) return {};
  return std::string(format->name);
}

void GgufModel::read_blocks(std::string_view name, std::vector<std::byte>& into) const {
  const Entry& entry = entries_.find(name)->second;
  into.resize(static_cast<std::size_t>(entry.tensor->bytes()));
  file_.read(*entry.tensor, 0, into);
  if (entry.change != GgufChange::none)
    into = unpair_rows<std::byte>(into, heads(entry), entry.tensor->bytes() / entry.tensor->shape[0]);
}

}  // namespace meshloom::trainer
