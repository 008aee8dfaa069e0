#include "trainer/interop/gguf_longrope.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/interop/families/longrope.h"
#include "trainer/io/gguf_blocks.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kMaxPairs = 4096;
// Tensors, and their lists in config.json.
constexpr std::pair<const char*, const char*> kFactors[] = {{"rope_factors_short.weight", "short_factor"},
                                                            {"rope_factors_long.weight", "long_factor"}};

Json factors_of(const GgufFile& file, const char* name, std::int64_t pairs) {
  const GgufTensor* tensor = file.find(name);
  const std::string where = "'" + file.path() + "', tensor " + name;
  if (!tensor) throw Error(where, "must be there, as the other factors are", "none");
  if (tensor->elements() != pairs || pairs > kMaxPairs)
    throw Error(where, "must have a factor for each of " + std::to_string(pairs) + " pairs",
                std::to_string(tensor->elements()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->bytes()));
  file.read(*tensor, 0, bytes);
  std::vector<float> factors(static_cast<std::size_t>(pairs));
  dequantize(*tensor->block, bytes, factors);
  return factors;
}

bool has_longrope(const OrderedJson& config) {
  return config.contains("rope_scaling") && config["rope_scaling"].contains("short_factor");
}

}  // namespace

bool is_longrope_tensor(const std::string& name) {
  return std::any_of(std::begin(kFactors), std::end(kFactors),
                     [&](const auto& factors) { return name == factors.first; });
}

Json longrope_of_gguf(const GgufFile& file, std::int64_t rotated, std::int64_t context, std::int64_t original,
                      std::optional<double> attention) {
  if (!file.find(kFactors[0].first) && !file.find(kFactors[1].first)) return nullptr;
  Json scaling{{"type", "longrope"}};
  for (const auto& [tensor, list] : kFactors) scaling[list] = factors_of(file, tensor, rotated / 2);
  const double usual = longrope_attention_factor(static_cast<double>(context) / static_cast<double>(original),
                                                 original),
               stated = attention.value_or(1);
  if (static_cast<float>(stated) != static_cast<float>(usual)) scaling["attention_factor"] = stated;
  return scaling;
}

std::vector<std::pair<std::string, GgufValue>> gguf_longrope_keys(const OrderedJson& config) {
  if (!has_longrope(config)) return {};
  const auto original = config["original_max_position_embeddings"].get<std::int64_t>();
  const double usual = longrope_attention_factor(
      config["max_position_embeddings"].get<double>() / static_cast<double>(original), original);
  return {
      {"rope.scaling.original_context_length", GgufValue::u32(original)},
      {"rope.scaling.attn_factor", GgufValue::f32(config["rope_scaling"].value("attention_factor", usual))}};
}

std::vector<std::pair<std::string, std::vector<float>>> gguf_longrope_tensors(const OrderedJson& config) {
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
  if (has_longrope(config))
    for (const auto& [tensor, list] : kFactors)
      tensors.emplace_back(tensor, config["rope_scaling"][list].get<std::vector<float>>());
  return tensors;
}

}  // namespace meshloom::trainer
