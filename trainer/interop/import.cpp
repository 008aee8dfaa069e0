#include "trainer/interop/import.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/families/layout.h"
#include "trainer/interop/gguf_model.h"
#include "trainer/interop/gguf_tokenizer.h"
#include "trainer/interop/kept_blocks.h"
#include "trainer/interop/tensor_files.h"
#include "trainer/interop/tokenizer_files.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"
#include "trainer/recipes/recipe.h"
#include "trainer/run/state/run_state.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSequence = 1024;  // of the recipe for fine-tuning, unless the model's limit is lower

// Reads the parameters of a model from its tensors.
class Source {
 public:
  Source(const TensorSource& files, const Family& family, const std::vector<NamedTensor>& parameters,
         const Note& note)
      : files_(files), family_(family), note_(note), tensors_(tensor_mappings(family, parameters)) {
    std::set<std::string> used;
    for (const TensorMapping& mapping : tensors_) {
      const std::string name = stored_name(mapping.hf_name, used);
      if (name.empty())
        throw Error(
            files.file_of(""),
            "the model that " + files.described_by() + " describes has a tensor '" + mapping.hf_name + "'",
            "none");
      check(mapping, name);
      names_.push_back(name);
      for (std::size_t part = 0; part < mapping.parameters.size(); ++part)
        places_[mapping.parameters[part].name].emplace_back(names_.size() - 1, part);
    }
    if (files.find(family.head) && !used.count(family.head)) {
      check_tied();
      used.insert(family.head);
    }
    for (const std::string& name : files.names())
      if (!used.count(name) && !is_ignored_tensor(family, name))
        throw Error(files.place(name),
                    "every tensor must belong to the model that " + files.described_by() + " describes",
                    "one that does not");
  }

  // Reads a parameter.
  void read(const std::string& name, std::span<std::byte> into) {
    std::vector<float> values(into.size() / 4);
    for (const auto& [index, part] : places_.at(name))
      extract_part(tensors_[index], part, whole(index), values);
    std::memcpy(into.data(), values.data(), into.size());
  }

  // How many parameters are stored in blocks, also where they cannot be kept so.
  std::int64_t count_in_blocks() const {
    return std::count_if(places_.begin(), places_.end(), [&](const auto& parameter) {
      return files_.in_blocks(names_[parameter.second.front().first]);
    });
  }
  // The format of the blocks in which a parameter can be kept; "" = in none.
  std::string block_format(const std::string& name) const {
    const auto& places = places_.at(name);
    const TensorMapping& mapping = tensors_[places.front().first];
    if (places.size() != 1 || mapping.transposed || mapping.expert >= 0) return {};
    return files_.block_format(names_[places.front().first]);
  }
  // Reads such a parameter as it is stored.
  void read_blocks(const std::string& name, std::span<std::byte> into) {
    const auto [index, part] = places_.at(name).front();
    (void)whole(index);  // notes values that are not finite
    std::vector<std::byte> blocks;
    files_.read_blocks(names_[index], blocks);
    const TensorMapping& mapping = tensors_[index];
    std::int64_t row = 0;
    for (std::size_t i = 0; i < part; ++i) row += mapping.parameters[i].type.shape[0];
    const std::size_t row_bytes = blocks.size() / static_cast<std::size_t>(mapping.shape[0]);
    std::memcpy(into.data(), blocks.data() + static_cast<std::size_t>(row) * row_bytes, into.size());
  }

 private:
  // The name with which the files have a tensor; "" = they do not.
  std::string stored_name(const std::string& name, std::set<std::string>& used) const {
    for (const std::string& form :
         {name, name.starts_with(family_.prefix) ? name.substr(family_.prefix.size()) : name})
      if (files_.find(form)) {
        used.insert(form);
        return form;
      }
    return {};
  }

  void check(const TensorMapping& mapping, const std::string& name) const {
    const TensorSource::Info info = *files_.find(name);
    if (!info.readable) throw Error(files_.place(name), "dtype must be F32, F16 or BF16", info.dtype);
    if (info.shape != mapping.shape)
      throw Error(files_.place(name),
                  "the shape must be " + kernels::to_string(mapping.shape) + ", as " + files_.described_by() +
                      " has it",
                  kernels::to_string(info.shape));
  }

  // A tied head may be stored too; it must then equal the embedding.
  void check_tied() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].hf_name != family_.embedding) continue;
      std::vector<float> head, embedding;
      if (files_.find(family_.head)->readable) files_.read(family_.head, head);
      files_.read(names_[i], embedding);
      if (head.size() != embedding.size() ||
          std::memcmp(head.data(), embedding.data(), head.size() * sizeof(float)) != 0)
        throw Error(files_.place(family_.head),
                    "with tie_word_embeddings it must equal '" + family_.embedding + "'", "another tensor");
    }
  }

  // A stored tensor in f32. The last one is cached, for the parameters that share it.
  const std::vector<float>& whole(std::size_t index) {
    if (last_ != index) {
      last_ = SIZE_MAX;
      files_.read(names_[index], values_);
      const auto bad =
          std::count_if(values_.begin(), values_.end(), [](float value) { return !std::isfinite(value); });
      if (bad > 0 && noted_.insert(index).second)
        note_(fmt::format("{}: {} of its values are not finite", files_.place(names_[index]), bad));
      last_ = index;
    }
    return values_;
  }

  const TensorSource& files_;
  const Family& family_;
  const Note& note_;
  std::set<std::size_t> noted_;  // indices of tensors whose non-finite values were noted
  std::vector<TensorMapping> tensors_;
  std::vector<std::string> names_;  // in the files, of the mapping with the same index
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

using ReadTokenizer = std::function<ImportedTokenizer(std::int64_t vocabulary)>;

Imported import_from(const ReadConfig& read, const TensorSource& files, const ReadTokenizer& read_tokenizer,
                     const std::string& out, const ImportOptions& options, const kernels::Catalog& catalog,
                     const Note& note) {
  CheckpointContents contents;
  Imported imported{"", read.family->name, 0};
  std::vector<NamedTensor> parameters;
  for (const layers::ParameterInfo& parameter : layers::trace_logits(read.model, catalog, 1, 1).parameters) {
    parameters.push_back({parameter.path, parameter.type});
    imported.parameters += parameter.type.elements();
  }
  Source source(files, *read.family, parameters, note);
  layers::CausalLM::Config model = read.model;
  std::map<std::string, std::string> blocks;  // parameters that are kept in blocks, and what they are in f32
  contents.model = parameters;
  if (options.keep_quantized) {
    keep_blocks(
        model, parameters, [&](const std::string& parameter) { return source.block_format(parameter); },
        source.count_in_blocks(), note);
    contents.model.clear();
    for (const layers::ParameterInfo& parameter : layers::trace_logits(model, catalog, 1, 1).parameters) {
      contents.model.push_back({parameter.path, parameter.type});
      if (parameter.storage) blocks.emplace(parameter.path, parameter.storage->source);
    }
  }
  if (!checkpoint_steps(out).empty())
    throw Error("'" + out + "'", "must hold no checkpoint",
                "step " + std::to_string(checkpoint_steps(out).front()));
  TrainerConfig config = recipe_for(model);
  const ImportedTokenizer tokenizer = read_tokenizer(layers::vocabulary(model));
  config.input->tokenizer = tokenizer.config;
  config.check();
  put(store_recipe(config, tokenizer.files), contents);
  contents.state = to_json(RunState{});
  contents.read = [&](const std::string& name, std::span<std::byte> into) {
    if (const auto kept = blocks.find(name); kept != blocks.end())
      return source.read_blocks(kept->second, into);
    source.read(name, into);
  };
  imported.checkpoint = save_checkpoint(out, 0, contents, 0);
  return imported;
}

Imported import_gguf(const std::string& from, const std::string& out, const ImportOptions& options,
                     const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note) {
  const GgufModel model(from);
  nlohmann::json json = model.config();
  const ReadConfig read = read_config_json(json, "'" + from + "'", classes, note);
  fs::path beside = fs::path(out).lexically_normal();
  if (!beside.has_filename()) beside = beside.parent_path();
  const ScratchDirectory scratch(fmt::format("{}.tmp-{}", beside.string(), ::getpid()));
  // Messages name the file that the user has.
  const auto plain = [&](std::string text) {
    if (const std::size_t at = text.find(scratch.path()); at != std::string::npos)
      text.replace(at, scratch.path().size(), from);
    return text;
  };
  const auto read_tokenizer = [&](std::int64_t vocabulary) {
    try {
      if (!write_tokenizer_of_gguf(model.file(), scratch.path(), json, note))
        return ImportedTokenizer{BytesConfig{}, {}};
      return read_tokenizer_files(scratch.path(), json, vocabulary,
                                  [&](const std::string& text) { note(plain(text)); });
    } catch (const Error& error) {
      throw Error(plain(error.where()), plain(error.rule()), plain(error.found()));
    }
  };
  return import_from(read, model, read_tokenizer, out, options, catalog, note);
}

}  // namespace

Imported import_model(const std::string& from, const std::string& out, const ImportOptions& options,
                      const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note) {
  std::error_code ignored;
  if (from.ends_with(".gguf") || fs::is_regular_file(from, ignored))
    return import_gguf(from, out, options, catalog, classes, note);
  if (options.keep_quantized)
    throw Error("--keep-quantized", "needs a GGUF file, which stores weights in blocks", "'" + from + "'");
  const std::string path = from + "/config.json", where = "'" + path + "'";
  const nlohmann::json json = parse_json(read_file(path, where), where, "the file", 16);
  const ReadConfig read = read_config_json(json, where, classes, note);
  const TensorFiles files(from);
  return import_from(
      read, files,
      [&](std::int64_t vocabulary) { return read_tokenizer_files(from, json, vocabulary, note); }, out,
      options, catalog, note);
}

}  // namespace meshloom::trainer
