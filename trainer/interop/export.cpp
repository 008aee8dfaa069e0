#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "hal/error.h"
#include "layers/adapters/merge.h"
#include "layers/core/inference_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/config/trainer_config.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/families/ignored_fields.h"
#include "trainer/interop/families/layout.h"
#include "trainer/interop/gguf_export.h"
#include "trainer/interop/import.h"
#include "trainer/interop/tokenizer_files.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/float_convert.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

std::string stored_dtype(const std::string& name, bool gguf) {
  if (name == "f32") return "F32";
  if (name == "bf16") return "BF16";
  if (name == "f16") return "F16";
  throw Error("--dtype",
              gguf ? "must be f32, bf16, f16 or q8_0" : "must be f32, bf16 or f16 (q8_0 needs --format gguf)",
              "'" + name + "'");
}

// The names of dtypes in config.json.
std::string torch_dtype(const std::string& name) {
  return name == "f32" ? "float32" : name == "bf16" ? "bfloat16" : "float16";
}

// Reads the parameters of a checkpoint for export: with merged adapters, or as averages, if the options say
// so. The last parameter is cached, for the experts that share it.
class Parameters {
 public:
  Parameters(const Checkpoint& checkpoint, std::vector<layers::Merge> merges, bool ema)
      : checkpoint_(checkpoint), merges_(std::move(merges)), ema_(ema) {}

  std::vector<NamedTensor> list() const {
    std::set<std::string> merged;
    for (const layers::Merge& merge : merges_) merged.insert(merge.sources.begin(), merge.sources.end());
    for (const layers::Merge& merge : merges_) merged.erase(merge.target);
    std::vector<NamedTensor> all;
    for (const StoredTensor& tensor : checkpoint_.model.tensors())
      if (!merged.count(tensor.name)) all.push_back({tensor.name, {kernels::DType::f32, tensor.shape}});
    for (const layers::Merge& merge : merges_)  // parameters that are in no file
      if (std::find(merge.sources.begin(), merge.sources.end(), merge.target) == merge.sources.end())
        all.push_back({merge.target, {kernels::DType::f32, merge.shape}});
    return all;
  }

  // The parameters of one mapping, joined.
  std::vector<float> joined(const TensorMapping& mapping) {
    std::vector<float> tensor(static_cast<std::size_t>(kernels::elements(mapping.shape)));
    for (std::size_t part = 0; part < mapping.parameters.size(); ++part)
      insert_part(mapping, part, read(mapping.parameters[part].name), tensor);
    return tensor;
  }

 private:
  std::span<const float> read(const std::string& name) {
    if (name_ == name) return values_;
    values_ = made(name, merges_.size());
    name_ = name;
    return values_;
  }

  // The parameter after the first `count` merges.
  std::vector<float> made(const std::string& name, std::size_t count) const {
    while (count-- > 0) {
      const layers::Merge& merge = merges_[count];
      if (merge.target != name) continue;
      std::vector<std::vector<float>> sources;
      for (const std::string& source : merge.sources) sources.push_back(made(source, count));
      return merge.merge(sources);
    }
    return stored(name);
  }

  std::vector<float> stored(const std::string& name) const {
    const std::string average = "optimizer/ema/" + name;  // frozen parameters have none
    const bool averaged = ema_ && checkpoint_.optimizer.find(average);
    const StoredTensors& file = averaged ? checkpoint_.optimizer : checkpoint_.model;
    const StoredTensor* tensor = file.find(averaged ? average : name);
    if (!tensor) throw Error("'" + file.path() + "'", "must hold the tensor '" + name + "'", "it is absent");
    const auto count = static_cast<std::size_t>(kernels::elements(tensor->shape));
    if (tensor->dtype == "U8") {
      std::vector<std::uint8_t> bytes(count);
      file.read(*tensor, std::as_writable_bytes(std::span(bytes)));
      return {bytes.begin(), bytes.end()};
    }
    std::vector<float> values(count);
    if (tensor->dtype == "BF16") {
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->bytes()));
      file.read(*tensor, bytes);
      to_f32(tensor->dtype, bytes, values);
      return values;
    }
    file.read(*tensor, std::as_writable_bytes(std::span(values)));
    return values;
  }

  const Checkpoint& checkpoint_;
  std::vector<layers::Merge> merges_;
  bool ema_;
  std::string name_;
  std::vector<float> values_;
};

// Writes one shard.
void write_shard(const std::string& directory, const std::string& name, std::span<const TensorMapping> part,
                 Parameters& parameters, const std::string& dtype) {
  std::vector<StoredTensor> stored;
  for (const TensorMapping& mapping : part) stored.push_back({mapping.hf_name, dtype, mapping.shape});
  ChecksummedFile file(directory, name);
  file.write(safetensors_header(stored, {{"format", "pt"}}));
  std::vector<std::byte> bytes;
  for (const TensorMapping& mapping : part) {
    const std::vector<float> values = parameters.joined(mapping);
    bytes.resize(values.size() * float_bytes(dtype));
    if (!from_f32(dtype, values, bytes))
      throw Error("tensor '" + mapping.hf_name + "'", "every value must be in the range of " + dtype,
                  "a larger one");
    file.write(bytes);
  }
  file.finish();
}

void write_weights(const std::string& directory, const std::vector<TensorMapping>& all,
                   Parameters& parameters, const std::string& dtype, std::int64_t shard_bytes) {
  std::vector<std::size_t> ends;  // the end of each shard
  std::int64_t used = 0, total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t bytes =
        kernels::elements(all[i].shape) * static_cast<std::int64_t>(float_bytes(dtype));
    if (used > 0 && used + bytes > shard_bytes) {
      ends.push_back(i);
      used = 0;
    }
    used += bytes;
    total += bytes;
  }
  ends.push_back(all.size());
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::size_t begin = 0;
  for (std::size_t shard = 0; shard < ends.size(); ++shard) {
    const std::string name = ends.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, ends.size());
    write_shard(directory, name, std::span(all).subspan(begin, ends[shard] - begin), parameters, dtype);
    for (; begin < ends[shard]; ++begin) map[all[begin].hf_name] = name;
  }
  if (ends.size() > 1)
    write_new_file(
        directory, "model.safetensors.index.json",
        nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
}

nlohmann::json config_of(const std::string& directory) {
  const std::string path = directory + "/config.json", where = "'" + path + "'";
  nlohmann::json json = parse_json(read_file(path, where), where, "the file", 16);
  if (!json.is_object() || !json.contains("model_type") || !json["model_type"].is_string())
    throw Error(where + ", field model_type", "must be text", "none");
  return json;
}

std::string family_of(const ExportOptions& options) {
  if (options.like.empty()) return options.family;
  const std::string family = config_of(options.like)["model_type"];
  if (!options.family.empty() && options.family != family)
    throw Error("--family", "must be that of --like, " + family, "'" + options.family + "'");
  return family;
}

// Copies fields of the other directory's config.json that are known not to describe a model: the other model
// may have other frequencies or windows, or its weights may be stored in another way.
void take_over(nlohmann::ordered_json& json, const Family& family, const std::string& directory,
               const Note& note) {
  const nlohmann::json other = config_of(directory);
  for (const auto& [name, value] : other.items()) {
    if (json.contains(name) || describes_model(family, name) || name == "dtype") continue;
    if (is_ignored_field(family, name) || is_dropout_field(name))
      json[name] = value;
    else if (!value.is_null())
      note("field " + shown(name) + " of '" + directory +
           "/config.json' is not copied, because it may describe a model");
  }
}

}  // namespace

std::string export_model(const std::string& checkpoint, const std::string& out, const ExportOptions& options,
                         const layers::ClassTable& classes, const Note& note) {
  const bool gguf = options.format == "gguf";
  if (!gguf && options.format != "hf")
    throw Error("--format", "must be hf or gguf", "'" + options.format + "'");
  const std::string dtype = gguf && options.dtype == "q8_0" ? "Q8_0" : stored_dtype(options.dtype, gguf);
  if (options.shard_bytes < 1)
    throw Error("--shard-bytes", "must be at least 1", std::to_string(options.shard_bytes));
  std::error_code ignored;
  if (!gguf && fs::exists(out, ignored) && !(fs::is_directory(out, ignored) && fs::is_empty(out, ignored)))
    throw Error("'" + out + "'", "must not exist or be an empty directory", "something else");
  const Checkpoint source = open_newest(checkpoint, note);
  TrainerConfig config = recipe_of(source, classes);
  layers::MergedModel merged = layers::merge_adapters(*layers::inference_config(*config.model));
  if (options.merge && merged.adapters == 0)
    throw Error("--merge", "needs a model with adapters", "'" + source.path + "' has none");
  if (!options.merge && merged.adapters > 0)
    throw Error("'" + source.path + "'",
                "a model with adapters must be exported with --merge, which merges them",
                std::to_string(merged.adapters) + " adapters");
  if (options.ema && !config.learner->ema)
    throw Error("--ema", "needs a run with averages (learner.ema)", "'" + source.path + "' has none");
  Parameters parameters(source, std::move(merged.merges), options.ema);
  WrittenConfig written = write_config_json(*merged.model, config.sequence, family_of(options), classes);
  written.json["torch_dtype"] = torch_dtype(options.dtype);
  if (!options.like.empty()) take_over(written.json, *written.family, options.like, note);
  for (const std::string& name : written.family->null_fields)
    if (!written.json.contains(name)) written.json[name] = nullptr;
  const std::vector<TensorMapping> all = tensor_mappings(*written.family, parameters.list());
  if (gguf) {
    const auto read = [&](const TensorMapping& mapping) { return parameters.joined(mapping); };
    write_gguf({*written.family, written.json, all, read, *config.input, options.like, options.dtype}, out,
               note);
    return written.family->name;
  }

  fs::path parent = fs::path(out).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();
  const std::string target = parent.string();
  const std::string temporary = fmt::format("{}.tmp-{}", target, ::getpid());
  try {
    remove_tree(temporary);
    make_directories(temporary);
    write_weights(temporary, all, parameters, dtype, options.shard_bytes);
    write_tokenizer_files(*config.input, options.like, temporary, written.json, note);
    write_new_file(temporary, "config.json", written.json.dump(2) + "\n");
    sync_directory(temporary);
    fs::remove(target, ignored);  // it is empty or does not exist
    rename_path(temporary, target);
    sync_directory(parent.has_parent_path() ? parent.parent_path().string() : ".");
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  return written.family->name;
}

}  // namespace meshloom::trainer
