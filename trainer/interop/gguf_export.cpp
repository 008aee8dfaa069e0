#include "trainer/interop/gguf_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "hal/error.h"
#include "trainer/interop/gguf_config.h"
#include "trainer/interop/gguf_names.h"
#include "trainer/interop/gguf_tokenizer.h"
#include "trainer/interop/tokenizer_files.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/gguf_blocks.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

// A tensor of the file, and those of transformers that it holds one after another.
struct Planned {
  GgufTensor tensor;
  GgufChange change = GgufChange::none;
  std::vector<const TensorMapping*> parts;
  std::vector<float> values = {};  // of a tensor that transformers does not have
};

// The name of `hf_name` by a rule, or "": the rule's "{i}" and "{e}" stand for numbers.
std::string name_by(const GgufName& rule, const std::string& hf_name) {
  std::string layer;
  std::size_t at = 0;
  for (std::size_t i = 0; i < rule.hf.size();) {
    if (rule.hf[i] != '{') {
      if (at >= hf_name.size() || hf_name[at++] != rule.hf[i++]) return {};
      continue;
    }
    const std::size_t begin = at;
    while (at < hf_name.size() && std::isdigit(static_cast<unsigned char>(hf_name[at]))) ++at;
    if (at == begin) return {};
    if (rule.hf[i + 1] == 'i') layer = hf_name.substr(begin, at - begin);
    i += 3;
  }
  if (at != hf_name.size()) return {};
  std::string name = rule.gguf;
  if (const std::size_t mark = name.find("{i}"); mark != std::string::npos) name.replace(mark, 3, layer);
  return name;
}

const GgufBlock& block_for(const std::string& dtype, const std::string& name,
                           const std::vector<std::int64_t>& shape) {
  const bool exact =
      shape.size() < 2 || name == "position_embd.weight" || name.find("ffn_gate_inp") != std::string::npos;
  if (exact || dtype == "f32") return *gguf_block("F32");
  if (dtype == "bf16") return *gguf_block("BF16");
  return *gguf_block(dtype == "q8_0" && shape.back() % 32 == 0 ? "Q8_0" : "F16");
}

std::vector<Planned> plan(const GgufExport& model) {
  const std::vector<GgufName> rules = gguf_names(model.family.name);
  std::vector<Planned> planned;
  std::map<std::string, std::size_t> places;
  for (const TensorMapping& mapping : model.tensors) {
    std::string name;
    GgufChange change = GgufChange::none;
    for (const GgufName& rule : rules)
      if (name = name_by(rule, mapping.hf_name); !name.empty()) {
        change = rule.change;
        break;
      }
    if (name.empty())
      throw Error("--format gguf, tensor '" + mapping.hf_name + "'", "must have a name in llama.cpp", "none");
    const auto [place, fresh] = places.try_emplace(name, planned.size());
    if (!fresh) {
      planned[place->second].parts.push_back(&mapping);
      continue;
    }
    Planned one{{name, nullptr, mapping.shape, 0, 0}, change, {&mapping}};
    if (change == GgufChange::transposed) std::reverse(one.tensor.shape.begin(), one.tensor.shape.end());
    planned.push_back(std::move(one));
  }
  for (Planned& one : planned) {
    if (one.change == GgufChange::experts)
      one.tensor.shape.insert(one.tensor.shape.begin(), static_cast<std::int64_t>(one.parts.size()));
    one.tensor.block = &block_for(model.dtype, one.tensor.name, one.tensor.shape);
  }
  return planned;
}

// The values as the file has them.
std::vector<float> values_of(const GgufExport& model, const Planned& planned) {
  if (planned.parts.empty()) return planned.values;
  std::vector<float> values;
  for (const TensorMapping* part : planned.parts) {
    const std::vector<float> read = model.read(*part);
    values.insert(values.end(), read.begin(), read.end());
  }
  const std::vector<std::int64_t>& shape = planned.tensor.shape;
  const std::int64_t row = shape.size() > 1 ? shape.back() : 1;
  const auto heads = [&](const char* key) { return model.config[key].get<std::int64_t>(); };
  switch (planned.change) {
    case GgufChange::none:
    case GgufChange::experts:
      break;
    case GgufChange::query:
      return pair_rows(values, heads("num_attention_heads"), row);
    case GgufChange::key:
      return pair_rows(values, heads("num_key_value_heads"), row);
    case GgufChange::norm:
      for (float& value : values) value += 1;
      break;
    case GgufChange::transposed:
      if (shape.size() == 2) return transposed(values, shape[1], shape[0]);
      break;
  }
  return values;
}

std::int64_t file_type(const std::string& dtype) {  // the numbers of llama.h
  return dtype == "f32" ? 0 : dtype == "f16" ? 1 : dtype == "q8_0" ? 7 : 32;
}

}  // namespace

void write_gguf(const GgufExport& model, const std::string& out, const Note& note) {
  std::error_code ignored;
  if (fs::exists(out, ignored)) throw Error("'" + out + "'", "must not exist", "something else");
  nlohmann::ordered_json config = model.config;
  std::vector<std::pair<std::string, GgufValue>> metadata{
      {"general.architecture", GgufValue::text(gguf_architecture(model.family.name))},
      {"general.type", GgufValue::text("model")},
      {"general.file_type", GgufValue::u32(file_type(model.dtype))},
      {"general.quantization_version", GgufValue::u32(2)}};
  for (auto& entry : gguf_metadata(model.family.name, config)) metadata.push_back(std::move(entry));
  std::vector<Planned> planned = plan(model);
  for (const auto& [name, factors] : gguf_rope_tensors(config))
    planned.push_back({{name, gguf_block("F32"), {static_cast<std::int64_t>(factors.size())}, 0, 0},
                       GgufChange::none,
                       {},
                       factors});

  const fs::path target(out);
  const std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
  make_directories(parent);
  const ScratchDirectory scratch(
      fmt::format("{}/.{}.tmp-{}", parent, target.filename().string(), ::getpid()));
  layers::Child<TokenizerConfig> tokenizer = model.input.tokenizer;
  const bool has_files = tokenizer->has_files();
  write_tokenizer_files(model.input, model.like, scratch.path(), config, [&](const std::string& text) {
    if (has_files) note(text);
  });
  const std::int64_t vocabulary = config["vocab_size"].get<std::int64_t>();
  for (auto& entry : gguf_tokenizer(*tokenizer, scratch.path(), config, vocabulary, note))
    metadata.push_back(std::move(entry));

  std::vector<GgufTensor> tensors;
  for (const Planned& one : planned) tensors.push_back(one.tensor);
  const std::string header = gguf_header(metadata, tensors);
  ChecksummedFile file(scratch.path(), "model.gguf");
  file.write(header);
  std::vector<std::byte> bytes;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    bytes.assign(static_cast<std::size_t>(tensors[i].begin - at), std::byte{0});
    file.write(bytes);
    const std::vector<float> values = values_of(model, planned[i]);
    bytes.resize(static_cast<std::size_t>(tensors[i].bytes()));
    if (!quantize(*tensors[i].block, values, bytes))
      throw Error("tensor '" + tensors[i].name + "'",
                  "every value must be in the range of " + std::string(tensors[i].block->name),
                  "a larger one");
    file.write(bytes);
    at = tensors[i].end;
  }
  // llama.cpp expects the padding of the last tensor too.
  bytes.assign(static_cast<std::size_t>((kGgufAlignment - at % kGgufAlignment) % kGgufAlignment),
               std::byte{0});
  file.write(bytes);
  file.finish();
  rename_path(scratch.path() + "/model.gguf", out);
  sync_directory(parent);
}

}  // namespace meshloom::trainer
