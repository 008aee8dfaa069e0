#include "trainer/interop/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/convert.h"
#include "trainer/interop/families/layout.h"
#include "trainer/interop/tensor_files.h"
#include "trainer/interop/tokenizer_files.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"
#include "trainer/recipes/recipe.h"
#include "trainer/run/run_state.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSequence = 1024;  // of the recipe for fine-tuning, unless the model's limit is lower

// Reads the parameters of a model from the tensors of the files.
class Source {
 public:
  Source(const TensorFiles& files, const Family& family, const std::vector<NamedTensor>& parameters,
         const Note& note)
      : family_(family), note_(note), tensors_(tensor_mappings(family, parameters)) {
    std::set<std::string> used;
    for (const TensorMapping& mapping : tensors_) {
      const TensorFiles::Entry* entry = find(files, mapping.hf_name, used);
      if (!entry)
        throw Error("'" + files.entries().begin()->second.file->path() + "'",
                    "the model that config.json describes has a tensor '" + mapping.hf_name + "'", "none");
      check(mapping, *entry);
      entries_.push_back(*entry);
      for (std::size_t part = 0; part < mapping.parameters.size(); ++part)
        places_[mapping.parameters[part].name].emplace_back(entries_.size() - 1, part);
    }
    if (const TensorFiles::Entry* head = files.find(family.head); head && !used.count(family.head)) {
      check_tied(*head);
      used.insert(family.head);
    }
    for (const auto& [name, entry] : files.entries())
      if (!used.count(name) && !is_ignored_tensor(family, name))
        throw Error("'" + entry.file->path() + "', tensor " + shown(name),
                    "every tensor must belong to the model that config.json describes", "one that does not");
  }

  // Reads a parameter.
  void read(const std::string& name, std::span<std::byte> into) {
    std::vector<float> values(into.size() / 4);
    for (const auto& [index, part] : places_.at(name))
      extract_part(tensors_[index], part, whole(index), values);
    std::memcpy(into.data(), values.data(), into.size());
  }

 private:
  const TensorFiles::Entry* find(const TensorFiles& files, const std::string& name,
                                 std::set<std::string>& used) {
    for (const std::string& form :
         {name, name.starts_with(family_.prefix) ? name.substr(family_.prefix.size()) : name})
      if (const TensorFiles::Entry* entry = files.find(form)) {
        used.insert(form);
        return entry;
      }
    return nullptr;
  }

  static void check(const TensorMapping& mapping, const TensorFiles::Entry& entry) {
    const std::string where = "'" + entry.file->path() + "', tensor " + shown(entry.tensor->name);
    if (float_bytes(entry.tensor->dtype) == 0)
      throw Error(where, "dtype must be F32, F16 or BF16", entry.tensor->dtype);
    if (entry.tensor->shape != mapping.shape)
      throw Error(where, "the shape must be " + kernels::to_string(mapping.shape) + ", as config.json has it",
                  kernels::to_string(entry.tensor->shape));
  }

  // A tied head may be stored too; it must then equal the embedding.
  void check_tied(const TensorFiles::Entry& head) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].hf_name != family_.embedding) continue;
      const TensorFiles::Entry& embedding = entries_[i];
      const std::string where = "'" + head.file->path() + "', tensor " + shown(head.tensor->name);
      std::vector<std::byte> a(static_cast<std::size_t>(head.tensor->bytes())),
          b(static_cast<std::size_t>(embedding.tensor->bytes()));
      head.file->read(*head.tensor, a);
      embedding.file->read(*embedding.tensor, b);
      if (a != b)
        throw Error(where, "with tie_word_embeddings it must equal '" + family_.embedding + "'",
                    "another tensor");
    }
  }

  // A stored tensor in f32. The last one is cached, for the parameters that share it.
  const std::vector<float>& whole(std::size_t index) {
    if (last_ != index) {
      const TensorFiles::Entry& entry = entries_[index];
      std::vector<std::byte> bytes(static_cast<std::size_t>(entry.tensor->bytes()));
      entry.file->read(*entry.tensor, bytes);
      values_.resize(bytes.size() / float_bytes(entry.tensor->dtype));
      to_f32(entry.tensor->dtype, bytes, values_);
      const auto bad =
          std::count_if(values_.begin(), values_.end(), [](float value) { return !std::isfinite(value); });
      if (bad > 0 && noted_.insert(index).second)
        note_(fmt::format("'{}', tensor {}: {} of its values are not finite", entry.file->path(),
                          shown(entry.tensor->name), bad));
      last_ = index;
    }
    return values_;
  }

  const Family& family_;
  const Note& note_;
  std::set<std::size_t> noted_;  // indices of tensors whose non-finite values were noted
  std::vector<TensorMapping> tensors_;
  std::vector<TensorFiles::Entry> entries_;  // of the mapping with the same index
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>>
      places_;  // parameter -> tensors and parts
  std::size_t last_ = SIZE_MAX;
  std::vector<float> values_;
};

TrainerConfig recipe_for(const layers::CausalLM::Config& model) {
  TrainerConfig config;
  config.model = model;
  const std::int64_t max_sequence = layers::max_sequence(model);
  config.sequence = max_sequence > 0 ? std::min(max_sequence, kSequence) : kSequence;
  config.steps = 500;
  config.eval_every = 100;
  config.checkpoint_every = 250;
  set_adamw(config, {.peak_learning_rate = 2e-5, .warmup_steps = 20, .beta2 = 0.999, .weight_decay = 0.01});
  return config;
}

}  // namespace

Imported import_model(const std::string& from, const std::string& out, const kernels::Catalog& catalog,
                      const layers::ClassTable& classes, const Note& note) {
  const std::string path = from + "/config.json", where = "'" + path + "'";
  const nlohmann::json json = parse_json(read_file(path, where), where, "the file", 16);
  const ReadConfig read = read_config_json(json, where, classes, note);
  const TensorFiles files(from);
  CheckpointContents contents;
  Imported imported{"", read.family->name, 0};
  for (const layers::ParameterInfo& parameter : layers::trace_logits(read.model, catalog, 1, 1).parameters) {
    contents.model.push_back({parameter.path, parameter.type});
    imported.parameters += parameter.type.elements();
  }
  Source source(files, *read.family, contents.model, note);
  if (!checkpoint_steps(out).empty())
    throw Error("'" + out + "'", "must hold no checkpoint",
                "step " + std::to_string(checkpoint_steps(out).front()));
  TrainerConfig config = recipe_for(read.model);
  const ImportedTokenizer tokenizer = read_tokenizer_files(from, json, layers::vocabulary(read.model), note);
  config.input->tokenizer = tokenizer.config;
  config.check();
  put(store_recipe(config, tokenizer.files), contents);
  contents.state = to_json(RunState{});
  contents.read = [&](const std::string& name, std::span<std::byte> into) { source.read(name, into); };
  imported.checkpoint = save_checkpoint(out, 0, contents, 0);
  return imported;
}

}  // namespace meshloom::trainer
