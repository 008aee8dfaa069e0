#include "trainer/interop/lora_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>

#include "hal/error.h"
#include "kernels/program/sizes.h"
#include "layers/adapters/lora.h"
#include "layers/adapters/merge.h"
#include "layers/core/inference_config.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/families/layout.h"
#include "trainer/io/file.h"
#include "trainer/io/float_convert.h"
#include "trainer/io/json.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;
using PeftJson = nlohmann::ordered_json;

constexpr std::int64_t kPeftConfigBytes = 1 << 20, kMaxLoraRank = 1 << 16;
constexpr std::size_t kMaxPatterns = 1024;

// Fields that do not change what an adapter computes: how it was made, where it goes, and what the names of the tensors say as well.
constexpr std::array kNoChange{"auto_mapping",
                               "base_model_name_or_path",
                               "corda_config",
                               "eva_config",
                               "exclude_modules",
                               "fan_in_fan_out",
                               "inference_mode",
                               "layers_pattern",
                               "layers_to_transform",
                               "lora_dropout",
                               "megatron_core",
                               "peft_version",
                               "qalora_group_size",
                               "revision",
                               "runtime_config",
                               "target_modules",
                               "task_type"};

bool is_neutral(const PeftJson& value) {
  return value.is_null() || value == false ||
         ((value.is_structured() || value.is_string()) && value.empty()) || value == "none";
}

std::string shown_peft(const PeftJson& value) {
  return shown(value.dump(-1, ' ', true, PeftJson::error_handler_t::replace));
}

[[noreturn]] void refuse_peft(const std::string& where, const std::string& field, const std::string& rule,
                              const std::string& found) {
  throw Error(where + ", field " + field, rule, found);
}

std::int64_t peft_rank(const PeftJson& value, const std::string& where, const std::string& field) {
  std::int64_t rank = 0;
  if (!natural(value, rank) || rank < 1 || rank > kMaxLoraRank)
    refuse_peft(where, field, "must be an integer from 1 to " + std::to_string(kMaxLoraRank),
                shown_peft(value));
  return rank;
}

double peft_alpha(const PeftJson& value, const std::string& where, const std::string& field) {
  const double alpha = value.is_number() ? value.get<double>() : std::nan("");
  if (!(std::abs(alpha) <= 1e6))
    refuse_peft(where, field, "must be a number from -1e6 to 1e6", shown_peft(value));
  return alpha;
}

// Calls each(pattern, value) in the order of the file.
template <typename Each>
void each_pattern(const PeftJson& json, const std::string& where, const char* field, Each each) {
  const auto found = json.find(field);
  if (found == json.end() || found->is_null()) return;
  if (!found->is_object() || found->size() > kMaxPatterns)
    refuse_peft(where, field, fmt::format("must be an object of at most {} names", kMaxPatterns),
                shown_peft(*found));
  for (const auto& [pattern, value] : found->items()) {
    const bool plain = !pattern.empty() && std::all_of(pattern.begin(), pattern.end(), [](char c) {
      return c == '.' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
             (c >= 'A' && c <= 'Z');
    });
    if (!plain)
      refuse_peft(where, field, "must have names of modules; regular expressions are not built",
                  shown(pattern));
    each(pattern, value);
  }
}

template <typename Value>
Value matching(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module,
               Value otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (module == pattern || module.ends_with("." + pattern)) return value;
  return otherwise;
}

// A Linear of the served model, or several that the family's files have as one.
struct PeftTarget {
  std::vector<std::string> paths;     // one after another along the outputs
  std::vector<std::int64_t> outputs;  // of each
  std::int64_t input = 0, output = 0;
};

// By the name that transformers gives the module.
std::map<std::string, PeftTarget> peft_targets(const layers::Config& model, std::int64_t sequence,
                                               const LoraSlotsOfPlan& slots, const kernels::Catalog& catalog,
                                               const layers::ClassTable& classes) {
  const layers::MergedModel plain = layers::merge_adapters(*layers::inference_config(model));
  std::vector<NamedTensor> parameters;
  for (const layers::ParameterInfo& info : layers::trace_logits(*plain.model, catalog, 1, 1).parameters)
    parameters.push_back({info.path, info.type});
  const WrittenConfig written = write_config_json(*plain.model, sequence, "", classes);
  const std::string end = ".weight", own_end = "/weight";
  std::map<std::string, PeftTarget> found;
  for (const TensorMapping& mapping : tensor_mappings(*written.family, parameters)) {
    if (!mapping.hf_name.ends_with(end) || mapping.expert >= 0) continue;
    PeftTarget target;
    for (const NamedTensor& parameter : mapping.parameters) {
      if (!parameter.name.ends_with(own_end)) break;
      const std::string path = parameter.name.substr(0, parameter.name.size() - own_end.size());
      const auto slot = slots.layers.find(path);
      if (slot == slots.layers.end()) break;
      target.paths.push_back(path);
      target.outputs.push_back(slot->second.output);
      target.input = slot->second.input;
      target.output += slot->second.output;
    }
    if (target.paths.size() == mapping.parameters.size())
      found[mapping.hf_name.substr(0, mapping.hf_name.size() - end.size())] = std::move(target);
  }
  return found;
}

// The values in f32, all of which must be finite.
template <typename Read>
std::vector<float> finite_values(const StoredTensor& tensor, const std::string& place, Read read) {
  if (float_bytes(tensor.dtype) == 0) throw Error(place, "dtype must be F32, F16 or BF16", tensor.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  read(std::span(bytes));
  std::vector<float> values(bytes.size() / float_bytes(tensor.dtype));
  to_f32(tensor.dtype, bytes, values);
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad != values.end()) throw Error(place, "every value must be finite", std::to_string(*bad));
  return values;
}

class PeftReader {
 public:
  PeftReader(const std::string& directory, const std::map<std::string, PeftTarget>& targets)
      : config_(parse_peft_config(read_file(directory + "/adapter_config.json",
                                            "'" + directory + "/adapter_config.json'", kPeftConfigBytes),
                                  "'" + directory + "/adapter_config.json'")),
        file_(checked_path(directory)),
        targets_(targets) {}

  LoraAdapter read() {
    for (const StoredTensor& tensor : file_.tensors()) note(tensor);
    LoraAdapter adapter;
    for (const auto& [module, pair] : found_) {
      if (!pair.a || !pair.b)
        throw Error(place(pair.a ? pair.a->name : pair.b->name), "lora_A and lora_B must come together",
                    pair.a ? "lora_A alone" : "lora_B alone");
      add(adapter, module, *pair.a, *pair.b);
    }
    if (adapter.layers.empty())
      throw Error("'" + file_.path() + "'", "must hold an adapter's tensors", "none");
    return adapter;
  }

 private:
  struct Pair {
    const StoredTensor *a = nullptr, *b = nullptr;
  };

  static std::string checked_path(const std::string& directory) {
    const std::string path = directory + "/adapter_model.safetensors";
    std::error_code ignored;
    if (!fs::exists(path, ignored) && fs::exists(directory + "/adapter_model.bin", ignored))
      throw Error("'" + directory + "'", "must hold adapter_model.safetensors; pickled files are not read",
                  "adapter_model.bin");
    return path;
  }
  std::string place(const std::string& tensor) const {
    return "'" + file_.path() + "', tensor " + shown(tensor);
  }

  void note(const StoredTensor& tensor) {
    static const std::string kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";
    const std::string& name = tensor.name;
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kPrefix) || !(is_a || name.ends_with(kB)) ||
        name.size() <= kPrefix.size() + kA.size())
      throw Error(place(name), "must be lora_A or lora_B of a Linear, base_model.model.NAME.lora_A.weight",
                  "another name");
    const std::string module = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size());
    if (!targets_.contains(module))
      throw Error(place(name), "must be of a Linear that the server has slots for, such as " + example(),
                  shown(module));
    (is_a ? found_[module].a : found_[module].b) = &tensor;
  }
  std::string example() const { return targets_.empty() ? "none" : "'" + targets_.begin()->first + "'"; }

  std::vector<float> values(const StoredTensor& tensor, const kernels::Shape& shape) const {
    if (tensor.shape != shape)
      throw Error(place(tensor.name), "the shape must be " + kernels::to_string(shape),
                  kernels::to_string(tensor.shape));
    return finite_values(tensor, place(tensor.name),
                         [&](std::span<std::byte> into) { file_.read(tensor, into); });
  }

  void add(LoraAdapter& adapter, const std::string& module, const StoredTensor& a,
           const StoredTensor& b) const {
    const PeftTarget& target = targets_.at(module);
    const std::int64_t rank = config_.rank_of(module);
    const std::vector<float> down = values(a, {rank, target.input});
    std::vector<float> up = values(b, {target.output, rank});
    const double scale = config_.scale_of(module);
    for (float& value : up) value = static_cast<float>(scale * static_cast<double>(value));
    auto begin = up.begin();
    for (std::size_t i = 0; i < target.paths.size(); ++i) {
      const auto end = begin + target.outputs[i] * rank;
      adapter.layers[target.paths[i]] = {rank, down, {begin, end}};
      begin = end;
    }
  }

  PeftConfig config_;
  SafetensorsFile file_;
  const std::map<std::string, PeftTarget>& targets_;
  std::map<std::string, Pair> found_;
};

// A run whose adapters are all Lora.
LoraAdapter read_lora_run(const std::string& directory, const layers::ClassTable& classes, const Note& note) {
  const Checkpoint checkpoint = open_newest(directory, note);
  const TrainerConfig config = recipe_of(checkpoint, classes);
  const std::string where = "'" + checkpoint.path + "'";
  if (!config.learner || config.learner->train != "adapters")
    throw Error(where, "must be of a run that trained its adapters alone (learner.train=adapters)",
                config.learner ? "'" + config.learner->train + "'" : "no learner");
  const auto* root = dynamic_cast<const layers::Module::Config*>(&*config.model);
  if (!root) throw Error(where, "the root of a model must be a module");
  const auto read = [&](const layers::Parameter& parameter) {
    const std::string place = where + ", tensor '" + parameter.path + "'";
    const StoredTensor* tensor = checkpoint.model.find(parameter.path);
    if (!tensor || tensor->shape != parameter.type.shape || tensor->shape.size() != 2)
      throw Error(place, "must be a matrix of the recipe's shape",
                  tensor ? kernels::to_string(tensor->shape) : "none");
    return finite_values(*tensor, place,
                         [&](std::span<std::byte> into) { checkpoint.model.read(*tensor, into); });
  };
  LoraAdapter adapter;
  root->build({})->visit([&](const layers::Module& module) {
    if (!dynamic_cast<const layers::Adapter*>(&module)) return;
    const auto* lora = dynamic_cast<const layers::Lora*>(&module);
    if (!lora)
      throw Error(where + ", layer '" + module.path() + "'", "adapters that are served must be Lora",
                  "another, which `meshloom export --merge` can merge");
    LoraAdapter::Layer layer{lora->a().type.dim(0), read(lora->a()), read(lora->b())};
    for (float& value : layer.b) value = static_cast<float>(lora->scale() * static_cast<double>(value));
    adapter.layers[module.path()] = std::move(layer);
  });
  if (adapter.layers.empty()) throw Error(where, "must have adapters", "none");
  return adapter;
}

}  // namespace

std::int64_t PeftConfig::rank_of(const std::string& module) const {
  return matching(rank_pattern, module, rank);
}

double PeftConfig::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(rank_of(module));
  return matching(alpha_pattern, module, alpha) / (rank_stabilized ? std::sqrt(r) : r);
}

PeftConfig parse_peft_config(const std::string& text, const std::string& where) {
  const PeftJson json = parse_ordered_json(text, where, "the file", 16);
  if (!json.is_object()) throw Error(where, "must be a JSON object", shown_peft(json));
  const auto field = [&](const char* name) {
    const auto found = json.find(name);
    if (found == json.end()) refuse_peft(where, name, "must be given", "none");
    return *found;
  };
  if (const PeftJson type = field("peft_type"); type != "LORA")
    refuse_peft(where, "peft_type", "must be \"LORA\"; other kinds of adapters are not built",
                shown_peft(type));
  PeftConfig config;
  config.rank = peft_rank(field("r"), where, "r");
  config.alpha = peft_alpha(field("lora_alpha"), where, "lora_alpha");
  if (const auto found = json.find("use_rslora"); found != json.end() && !found->is_null()) {
    if (!found->is_boolean()) refuse_peft(where, "use_rslora", "must be true or false", shown_peft(*found));
    config.rank_stabilized = found->get<bool>();
  }
  each_pattern(json, where, "rank_pattern", [&](const std::string& pattern, const PeftJson& value) {
    config.rank_pattern.emplace_back(pattern, peft_rank(value, where, "rank_pattern"));
  });
  each_pattern(json, where, "alpha_pattern", [&](const std::string& pattern, const PeftJson& value) {
    config.alpha_pattern.emplace_back(pattern, peft_alpha(value, where, "alpha_pattern"));
  });
  // These begin from other weights than those of the model, which are not in the adapter's files.
  if (const auto found = json.find("init_lora_weights"); found != json.end() && !is_neutral(*found)) {
    const bool keeps_weights =
        *found == true || *found == "gaussian" || *found == "eva" || *found == "orthogonal";
    if (!keeps_weights)
      refuse_peft(
          where, "init_lora_weights",
          "must be a start that leaves the model's weights as they are; save the adapter as a plain LoRA",
          shown_peft(*found));
  }
  static const std::set<std::string, std::less<>> kRead{
      "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "init_lora_weights"};
  for (const auto& [name, value] : json.items()) {
    const bool known =
        kRead.contains(name) || std::find(kNoChange.begin(), kNoChange.end(), name) != kNoChange.end();
    if (!known && !is_neutral(value))
      refuse_peft(where, shown(name), "is not built here, so it must be absent, null, false or empty",
                  shown_peft(value));
  }
  return config;
}

LoraAdapter read_lora(const std::string& directory, const layers::Config& model, std::int64_t sequence,
                      const LoraSlotsOfPlan& slots, const kernels::Catalog& catalog,
                      const layers::ClassTable& classes, const Note& note) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    throw Error(shown(directory), "must be the directory of an adapter", "none");
  LoraAdapter adapter;
  if (fs::exists(directory + "/adapter_config.json", ignored)) {
    const std::map<std::string, PeftTarget> found = peft_targets(model, sequence, slots, catalog, classes);
    adapter = PeftReader(directory, found).read();
  } else {
    adapter = read_lora_run(directory, classes, note);
  }
  check_fits(adapter, slots, "'" + directory + "'");
  return adapter;
}

}  // namespace meshloom::trainer
