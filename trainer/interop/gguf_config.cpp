#include "trainer/interop/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/interop/families/rotary.h"
#include "trainer/interop/gguf_longrope.h"
#include "trainer/interop/gguf_names.h"
#include "trainer/io/gguf_blocks.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kGemma3Pattern = 6;  // one layer of so many has no window
constexpr std::size_t kNoRopeInterval = 4;  // llama.cpp's, of a smollm3
constexpr const char* kRopeFactors = "rope_freqs.weight";

// The shortest number that is the same in f32: 1e-5, not 9.999999747378752e-06.
double shortest(double value) { return std::stod(fmt::format("{}", static_cast<float>(value))); }

// The keys of the architecture. Those that are not read are refused in the end.
class Fields {
 public:
  explicit Fields(const GgufFile& file) : file_(file) {
    const auto it = file.metadata().find("general.architecture");
    const auto* text = it == file.metadata().end() ? nullptr : std::get_if<std::string>(&it->second.data);
    if (!text)
      throw Error(place("general.architecture"), "must be text",
                  it == file.metadata().end() ? "none" : it->second.shown());
    architecture_ = *text;
  }

  const std::string& architecture() const { return architecture_; }
  std::string place(const std::string& key) const { return "'" + file_.path() + "', key " + key; }
  std::string full(const std::string& key) const { return architecture_ + "." + key; }

  std::optional<std::int64_t> size(const std::string& key) {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    std::optional<double> number = number_of(*value);
    if (const auto* array = std::get_if<GgufArray>(&value->data); array && array->type != GgufType::text) {
      // Some files have a number for each layer.
      for (std::size_t i = 0; i < array->size(); ++i) {
        if (number && *number != array->number(i))
          throw Error(place(full(key)), "must be the same in every layer",
                      fmt::format("{} and {}", *number, array->number(i)));
        number = array->number(i);
      }
    }
    if (!number || *number != std::floor(*number) || *number < 0 || *number > INT32_MAX)
      throw Error(place(full(key)), "must be an integer from 0 to 2^31 - 1", value->shown());
    return static_cast<std::int64_t>(*number);
  }
  std::int64_t required(const std::string& key) {
    const auto value = size(key);
    if (!value) throw Error(place(full(key)), "must be present", "none");
    return *value;
  }
  std::optional<double> number(const std::string& key) {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const std::optional<double> number = number_of(*value);
    if (!number || !std::isfinite(*number)) throw Error(place(full(key)), "must be a number", value->shown());
    return value->type == GgufType::f32 ? shortest(*number) : *number;
  }
  double required_number(const std::string& key) {
    const auto value = number(key);
    if (!value) throw Error(place(full(key)), "must be present", "none");
    return *value;
  }
  std::optional<std::string> text(const std::string& key) {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const auto* text = std::get_if<std::string>(&value->data);
    if (!text) throw Error(place(full(key)), "must be text", value->shown());
    return *text;
  }
  // A key that may be there with this value only.
  void only(const std::string& key, double wanted) {
    const GgufValue* value = find(key);
    if (!value) return;
    const auto* flag = std::get_if<bool>(&value->data);
    const std::optional<double> number = flag ? std::optional<double>(*flag ? 1 : 0) : number_of(*value);
    if (!number || *number != wanted)
      throw Error(place(full(key)), fmt::format("must be {}; others are not supported", wanted),
                  value->shown());
  }
  void ignore(const std::string& key) { used_.insert(full(key)); }

  // Refuses keys of the architecture that were not read, and files that hold no whole model.
  void finish() const {
    for (const auto& [key, value] : file_.metadata())
      if (key.starts_with(architecture_ + ".") && !used_.count(key))
        throw Error(
            place(shown(key)),
            "must be a key that is known of " + architecture_ + ", because others may change the model",
            value.shown());
    const auto check = [&](const std::string& key, auto holds, const std::string& rule) {
      if (const auto it = file_.metadata().find(key); it != file_.metadata().end() && !holds(it->second))
        throw Error(place(key), rule, it->second.shown());
    };
    check(
        "general.type",
        [](const GgufValue& value) {
          const auto* text = std::get_if<std::string>(&value.data);
          return text && *text == "model";
        },
        "must be \"model\"; adapters and other parts of models are not read");
    check(
        "split.count", [](const GgufValue& value) { return number_of(value).value_or(2) <= 1; },
        "must be 1: models that are split over several files are not read; llama-gguf-split --merge joins "
        "them");
    check(
        "general.tensor_extra.name", [](const GgufValue&) { return false; },
        "options of single tensors are not supported");
  }

 private:
  static std::optional<double> number_of(const GgufValue& value) {
    if (const auto* number = std::get_if<std::uint64_t>(&value.data)) return static_cast<double>(*number);
    if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*integer);
    if (const auto* real = std::get_if<double>(&value.data)) return *real;
    return std::nullopt;
  }
  const GgufValue* find(const std::string& key) {
    used_.insert(full(key));
    const auto it = file_.metadata().find(full(key));
    return it == file_.metadata().end() ? nullptr : &it->second;
  }

  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string> used_;
};

// The query_pre_attn_scalar of a Gemma in llama.cpp, which tells the models of 27B by their layers and scales their queries in
// another way.
std::int64_t gemma_scalar(const std::string& architecture, std::int64_t layers, std::int64_t share,
                          std::int64_t head_dim) {
  return layers == (architecture == "gemma2" ? 46 : 62) ? share : head_dim;
}

double llama3_factor(double theta, std::int64_t pair, std::int64_t head_dim, double factor, double low,
                     double high, double original) {
  const double frequency = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

// The rope_scaling of which the file has the factors only. Lengths and factors of the frequencies scale together, so with 1
// and 4, as Llama 3 has them, only the length is to be found.
Json llama3_scaling(const GgufFile& file, const GgufTensor& tensor, double theta, std::int64_t head_dim) {
  const std::string where = "'" + file.path() + "', tensor " + kRopeFactors;
  if (tensor.elements() != head_dim / 2 || tensor.elements() > 4096)
    throw Error(where,
                "must have half as many factors as a head has elements, " + std::to_string(head_dim / 2),
                std::to_string(tensor.elements()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  file.read(tensor, 0, bytes);
  std::vector<float> factors(static_cast<std::size_t>(tensor.elements()));
  dequantize(*tensor.block, bytes, factors);
  const double factor = shortest(*std::max_element(factors.begin(), factors.end()));
  if (std::isfinite(factor) && factor >= 1)
    for (std::int64_t original = 16; original <= 1 << 20; original *= 2) {
      bool same = true;
      for (std::size_t i = 0; i < factors.size() && same; ++i) {
        const double wanted = llama3_factor(theta, static_cast<std::int64_t>(i), head_dim, factor, 1, 4,
                                            static_cast<double>(original));
        same = std::abs(wanted - factors[i]) <= 1e-4 * wanted;
      }
      if (same)
        return {{"rope_type", "llama3"},
                {"factor", factor},
                {"low_freq_factor", 1.0},
                {"high_freq_factor", 4.0},
                {"original_max_position_embeddings", original}};
    }
  throw Error(where, "its factors must be those of Llama 3 with low_freq_factor 1 and high_freq_factor 4",
              "others");
}

void read_rope(Fields& fields, const GgufFile& file, std::int64_t head_dim, Json& config) {
  const double theta = fields.number("rope.freq_base").value_or(10000);
  config["rope_theta"] = theta;
  const bool phi3 = fields.architecture() == "phi3";
  const std::int64_t rotated = fields.size("rope.dimension_count").value_or(head_dim);
  if (phi3 && rotated != head_dim) config["partial_rotary_factor"] = partial_rotary_factor(rotated, head_dim);
  if (!phi3 && rotated != head_dim)
    throw Error(fields.place(fields.full("rope.dimension_count")),
                "must be the size of a head, " + std::to_string(head_dim), std::to_string(rotated));
  if (fields.architecture() == "granite")
    fields.only("rope.scaling.finetuned", 1);  // without it llama.cpp rotates nothing
  else
    fields.ignore("rope.scaling.finetuned");
  std::optional<double> attention;
  if (phi3)
    attention = fields.number("rope.scaling.attn_factor");
  else
    fields.only("rope.scaling.attn_factor", 1);
  fields.only("rope.scaling.yarn_attn_factor", 1);
  fields.only("rope.scaling.yarn_ext_factor", 1);
  fields.only("rope.scaling.yarn_log_multiplier", 0);
  const std::string type = fields.text("rope.scaling.type").value_or("none");
  const auto factor = fields.number("rope.scaling.factor"),
             fast = fields.number("rope.scaling.yarn_beta_fast"),
             slow = fields.number("rope.scaling.yarn_beta_slow");
  const auto original = fields.size("rope.scaling.original_context_length");
  const GgufTensor* factors = file.find(kRopeFactors);
  if (phi3 && (type == "none" || type == "longrope")) {
    const std::int64_t context = config["max_position_embeddings"];
    config["original_max_position_embeddings"] = original.value_or(context);
    config["rope_scaling"] =
        longrope_of_gguf(file, rotated, context, config["original_max_position_embeddings"], attention);
    if (config["rope_scaling"].is_null()) fields.only("rope.scaling.attn_factor", 1);
    return;
  }
  if (type != "none" && type != "linear" && type != "yarn")
    throw Error(fields.place(fields.full("rope.scaling.type")), "must be none, linear or yarn", shown(type));
  if (factors && type != "none")
    throw Error(fields.place(fields.full("rope.scaling.type")),
                std::string("must be none beside the tensor ") + kRopeFactors, shown(type));
  if (factors) {
    config["rope_scaling"] = llama3_scaling(file, *factors, theta, head_dim);
  } else if (type == "linear" && factor && *factor > 0 && *factor != 1) {
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", *factor}};
  } else if (type == "yarn") {
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", fields.required_number("rope.scaling.factor")},
                              {"beta_fast", fast.value_or(32)},
                              {"beta_slow", slow.value_or(1)}};
    if (original) config["rope_scaling"]["original_max_position_embeddings"] = *original;
  }
}

std::int64_t vocabulary_of(Fields& fields, const GgufFile& file) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    throw Error("'" + file.path() + "', tensor token_embd.weight", "must be a matrix",
                embedding ? "another" : "none");
  const std::int64_t rows = embedding->shape[0];
  if (const auto stated = fields.size("vocab_size"); stated && *stated != rows)
    throw Error(fields.place(fields.full("vocab_size")),
                "must be the rows of token_embd.weight, " + std::to_string(rows), std::to_string(*stated));
  return rows;
}

Json gpt2_config(Fields& fields, const GgufFile& file) {
  Json config{{"model_type", "gpt2"},
              {"vocab_size", vocabulary_of(fields, file)},
              {"n_embd", fields.required("embedding_length")},
              {"n_layer", fields.required("block_count")},
              {"n_head", fields.required("attention.head_count")},
              {"n_positions", fields.required("context_length")},
              {"n_inner", fields.required("feed_forward_length")},
              {"layer_norm_epsilon", fields.required_number("attention.layer_norm_epsilon")},
              {"tie_word_embeddings", !file.find("output.weight")}};
  if (const auto kv = fields.size("attention.head_count_kv"); kv && *kv != config["n_head"])
    throw Error(fields.place(fields.full("attention.head_count_kv")), "must be attention.head_count",
                std::to_string(*kv));
  return config;
}

void read_gemma3(Fields& fields, std::int64_t context, Json& config) {
  config["model_type"] = "gemma3_text";
  if (const auto cap = fields.number("final_logit_softcapping"); cap && *cap != 0)
    config["final_logit_softcapping"] = *cap;
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] != "linear")
    throw Error(fields.place(fields.full("rope.scaling.type")), "must be none or linear in this architecture",
                shown_json(config["rope_scaling"]["rope_type"]));
  fields.only("attention.sliding_window_pattern", kGemma3Pattern);
  config["rope_local_base_freq"] = fields.number("rope.freq_base_swa").value_or(10000);
  const std::int64_t window = fields.size("attention.sliding_window").value_or(0);
  config["sliding_window"] = window > 0 ? window : context;
  if (window == 0)
    config["layer_types"] =
        std::vector<std::string>(config["num_hidden_layers"].get<std::size_t>(), "full_attention");
}

Json rotary_config(Fields& fields, const GgufFile& file) {
  const std::string& architecture = fields.architecture();
  const std::int64_t hidden = fields.required("embedding_length"),
                     heads = fields.required("attention.head_count"),
                     experts = fields.size("expert_count").value_or(0);
  if (heads < 1) throw Error(fields.place(fields.full("attention.head_count")), "must be at least 1", "0");
  const std::int64_t head_dim = fields.size("attention.key_length").value_or(hidden / heads);
  if (const auto value = fields.size("attention.value_length").value_or(hidden / heads); value != head_dim)
    throw Error(fields.place(fields.full("attention.value_length")),
                "must be that of keys, " + std::to_string(head_dim), std::to_string(value));
  const std::int64_t context = fields.required("context_length");
  Json config{{"vocab_size", vocabulary_of(fields, file)},
              {"hidden_size", hidden},
              {"num_hidden_layers", fields.required("block_count")},
              {"num_attention_heads", heads},
              {"num_key_value_heads", fields.size("attention.head_count_kv").value_or(heads)},
              {"head_dim", head_dim},
              {"max_position_embeddings", context},
              {"rms_norm_eps", fields.required_number("attention.layer_norm_rms_epsilon")},
              {"tie_word_embeddings", !file.find("output.weight")}};
  fields.only("attention.causal", 1);
  read_rope(fields, file, head_dim, config);
  if (architecture.starts_with("gemma")) {
    config["intermediate_size"] = fields.required("feed_forward_length");
    config["hidden_activation"] = "gelu_pytorch_tanh";
    config["query_pre_attn_scalar"] =
        gemma_scalar(architecture, config["num_hidden_layers"], hidden / heads, head_dim);
    config["tie_word_embeddings"] = true;
    if (architecture == "gemma2") {
      config["model_type"] = "gemma2";
      config["sliding_window"] = fields.size("attention.sliding_window").value_or(4096);
      fields.only("attention.sliding_window_pattern", 2);
      config["attn_logit_softcapping"] = fields.number("attn_logit_softcapping").value_or(50);
      config["final_logit_softcapping"] = fields.number("final_logit_softcapping").value_or(30);
    } else {
      read_gemma3(fields, context, config);
    }
    return config;
  }
  config["hidden_act"] = "silu";
  // llama.cpp computes no windows in these architectures, whatever the key says; in phi3 it says what transformers computes.
  const auto window = fields.size("attention.sliding_window");
  if (window && *window > 0 && architecture == "phi3")
    config["sliding_window"] = *window;
  else if (window && *window > 0 && *window < context)
    throw Error(fields.place(fields.full("attention.sliding_window")),
                "must be absent or at least context_length in this architecture", std::to_string(*window));
  if (architecture == "qwen3moe") {
    config["model_type"] = "qwen3_moe";
    config["intermediate_size"] =
        fields.size("feed_forward_length").value_or(6144);  // of layers that it has not
    config["moe_intermediate_size"] = fields.required("expert_feed_forward_length");
    config["num_experts"] = fields.required("expert_count");
    config["num_experts_per_tok"] = fields.required("expert_used_count");
    config["norm_topk_prob"] = true;
    fields.only("expert_weights_norm", 1);
    fields.only("expert_shared_count", 0);
    fields.only("expert_shared_feed_forward_length", 0);
    return config;
  }
  config["intermediate_size"] = fields.required("feed_forward_length");
  if (architecture == "llama" && experts > 0) {
    config["model_type"] = "mixtral";
    config["num_local_experts"] = experts;
    config["num_experts_per_tok"] = fields.required("expert_used_count");
    config["sliding_window"] = nullptr;
    return config;
  }
  if (experts > 0)
    throw Error(fields.place(fields.full("expert_count")), "must be 0 in this architecture",
                std::to_string(experts));
  fields.only("expert_used_count", 0);
  config["model_type"] = architecture;
  static const std::set<std::string> kWithoutHeadDim{"qwen2", "smollm3", "phi3", "granite", "olmo2"};
  if (kWithoutHeadDim.count(architecture) && head_dim * heads == hidden)
    config.erase("head_dim");  // as in their own files
  if (architecture == "granite") {
    const auto scale = [&](const char* key) {
      const double value = fields.number(key).value_or(0);
      return value == 0 ? 1 : value;  // llama.cpp does nothing with 0
    };
    const double of_scores = fields.number("attention.scale").value_or(0);
    config["attention_multiplier"] =
        of_scores == 0 ? 1 / std::sqrt(static_cast<double>(head_dim)) : of_scores;
    config["embedding_multiplier"] = scale("embedding_scale");
    config["residual_multiplier"] = scale("residual_scale");
    config["logits_scaling"] = fields.required_number("logit_scale");
  }
  if (architecture == "llama" || architecture == "granite") {
    fields.ignore("tensor_data_layout");
    config["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
    config["mlp_bias"] = file.find("blk.0.ffn_gate.bias") != nullptr;
  }
  return config;
}

// Refuses to write what llama.cpp would compute in another way.
void must(bool holds, const std::string& what, const std::string& rule, const std::string& found) {
  if (!holds) throw Error("--format gguf, " + what, rule, found);
}

bool is_null(const OrderedJson& config, const char* name) {
  return !config.contains(name) || config[name].is_null();
}

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

void write_rope(const std::string& architecture, const OrderedJson& config, Metadata& metadata) {
  const auto add = [&](const std::string& key, GgufValue value) {
    metadata.emplace_back(architecture + ".rope." + key, std::move(value));
  };
  if (config.contains("rope_theta"))  // but for a gemma3 that has windows in all layers
    add("freq_base", GgufValue::f32(config["rope_theta"].get<double>()));
  if (config.contains("rope_local_base_freq"))
    add("freq_base_swa", GgufValue::f32(config["rope_local_base_freq"].get<double>()));
  if (architecture == "phi3")
    for (auto& entry : gguf_longrope_keys(config))
      metadata.emplace_back(architecture + "." + entry.first, std::move(entry.second));
  if (is_null(config, "rope_scaling") || architecture == "phi3") return;
  const OrderedJson& scaling = config["rope_scaling"];
  const std::string type = scaling["rope_type"];
  if (type == "llama3") {
    must(architecture == "llama" || architecture == "granite", "rope_scaling",
         "llama.cpp reads factors of frequencies in the architectures llama and granite only", architecture);
    return;  // a tensor
  }
  must(type == "linear" || type == "yarn", "rope_scaling", "must be linear, yarn or llama3", type);
  add("scaling.type", GgufValue::text(type));
  add("scaling.factor", GgufValue::f32(scaling["factor"].get<double>()));
  if (type == "linear") return;
  must(!scaling.contains("attention_factor"), "rope_scaling.attention_factor", "must be that of YaRN",
       "another");
  must(scaling.value("truncate", true), "rope_scaling.truncate", "must be true", "false");
  const char* original = "original_max_position_embeddings";
  add("scaling.original_context_length",
      GgufValue::u32((scaling.contains(original) ? scaling[original] : config["max_position_embeddings"])
                         .get<std::int64_t>()));
  add("scaling.yarn_beta_fast", GgufValue::f32(scaling["beta_fast"].get<double>()));
  add("scaling.yarn_beta_slow", GgufValue::f32(scaling["beta_slow"].get<double>()));
}

void check_gemma(const std::string& architecture, const OrderedJson& config, std::int64_t head_dim) {
  const bool second = architecture == "gemma2";
  must(!config.contains("layer_types"), "layer_types",
       second ? "gemma2 has windows in even layers" : "gemma3 has windows in all layers but every sixth",
       "others");
  if (second) {
    must(!is_null(config, "attn_logit_softcapping") && !is_null(config, "final_logit_softcapping"),
         "attn_logit_softcapping, final_logit_softcapping", "must be numbers", "none");
  } else {
    must(!config.contains("rope_parameters"), "rope_parameters",
         "llama.cpp scales no frequencies of layers with windows",
         config.value("rope_parameters", OrderedJson()).dump());
    must(is_null(config, "rope_scaling") || config["rope_scaling"]["rope_type"] == "linear", "rope_scaling",
         "must be linear, because llama.cpp scales all layers in other ways",
         config.value("rope_scaling", OrderedJson()).dump());
  }
  const std::int64_t wanted = gemma_scalar(
      architecture, config["num_hidden_layers"],
      config["hidden_size"].get<std::int64_t>() / config["num_attention_heads"].get<std::int64_t>(),
      head_dim);
  must(config["query_pre_attn_scalar"].get<double>() == static_cast<double>(wanted), "query_pre_attn_scalar",
       fmt::format("llama.cpp takes {} for this size", wanted), config["query_pre_attn_scalar"].dump());
}

std::int64_t head_dim_of(const OrderedJson& config) {
  if (!is_null(config, "head_dim")) return config["head_dim"].get<std::int64_t>();
  return config["hidden_size"].get<std::int64_t>() / config["num_attention_heads"].get<std::int64_t>();
}

Metadata gpt2_metadata(const OrderedJson& config) {
  const std::string activation = config["activation_function"];
  must(activation.starts_with("gelu_"), "activation_function", "must be the approximation of GELU by tanh",
       activation);
  const auto size = [&](const char* name) { return GgufValue::u32(config[name].get<std::int64_t>()); };
  return {{"gpt2.block_count", size("n_layer")},
          {"gpt2.context_length", size("n_positions")},
          {"gpt2.embedding_length", size("n_embd")},
          {"gpt2.feed_forward_length", size("n_inner")},
          {"gpt2.attention.head_count", size("n_head")},
          {"gpt2.attention.layer_norm_epsilon", GgufValue::f32(config["layer_norm_epsilon"].get<double>())}};
}

}  // namespace

nlohmann::json config_of_gguf(const GgufFile& file) {
  Fields fields(file);
  std::vector<std::string> known;
  for (const auto& [family, architecture] : gguf_families())
    if (std::find(known.begin(), known.end(), architecture) == known.end()) known.push_back(architecture);
  if (std::find(known.begin(), known.end(), fields.architecture()) == known.end())
    throw Error(fields.place("general.architecture"),
                "must be one of " + hal::join(known) + "; others are not read", shown(fields.architecture()));
  Json config = fields.architecture() == "gpt2" ? gpt2_config(fields, file) : rotary_config(fields, file);
  fields.finish();
  return Json::parse(config.dump());  // integers become unsigned, as in a file
}

bool is_gguf_rope_tensor(const std::string& family, const std::string& name) {
  return name == kRopeFactors || (family == "phi3" && is_longrope_tensor(name));
}

Metadata gguf_metadata(const std::string& family, const OrderedJson& config) {
  const std::string architecture = gguf_architecture(family);
  std::vector<std::string> known;
  for (const auto& entry : gguf_families()) known.push_back(entry.first);
  must(!architecture.empty(), "model", "must be of the families " + hal::join(known), family);
  if (family == "gpt2") return gpt2_metadata(config);
  const bool gemma = architecture.starts_with("gemma");
  const char* act = gemma ? "hidden_activation" : "hidden_act";
  must(config[act] == (gemma ? "gelu_pytorch_tanh" : "silu"), act,
       gemma ? "must be gelu_pytorch_tanh" : "must be silu", config[act].dump());
  Metadata metadata;
  const auto add = [&](const std::string& key, GgufValue value) {
    metadata.emplace_back(architecture + "." + key, std::move(value));
  };
  const auto add_size = [&](const std::string& key, const char* name) {
    add(key, GgufValue::u32(config[name].get<std::int64_t>()));
  };
  const std::int64_t head_dim = head_dim_of(config);
  add_size("vocab_size", "vocab_size");
  add_size("block_count", "num_hidden_layers");
  add_size("context_length", "max_position_embeddings");
  add_size("embedding_length", "hidden_size");
  add_size("feed_forward_length",
           is_null(config, "intermediate_size") ? "moe_intermediate_size" : "intermediate_size");
  add_size("attention.head_count", "num_attention_heads");
  add_size("attention.head_count_kv", "num_key_value_heads");
  add("attention.key_length", GgufValue::u32(head_dim));
  add("attention.value_length", GgufValue::u32(head_dim));
  add("attention.layer_norm_rms_epsilon", GgufValue::f32(config["rms_norm_eps"].get<double>()));
  add("rope.dimension_count",
      GgufValue::u32(static_cast<std::int64_t>(static_cast<double>(head_dim) *
                                               config.value("partial_rotary_factor", 1.0))));
  write_rope(architecture, config, metadata);
  if (gemma) {
    check_gemma(architecture, config, head_dim);
    must(!config.value("attention_bias", false), "attention_bias", "must be false", "true");
    add_size("attention.sliding_window", "sliding_window");
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (!is_null(config, cap)) add(cap, GgufValue::f32(config[cap].get<double>()));
    return metadata;
  }
  must(is_null(config, "sliding_window"), "sliding_window",
       "llama.cpp computes no windows in the architecture " + architecture,
       config.value("sliding_window", OrderedJson()).dump());
  if (family == "mixtral" || family == "qwen3_moe") {
    must(!config.contains("mlp_only_layers") || config["mlp_only_layers"].empty(), "mlp_only_layers",
         "every layer must have experts", "layers without");
    must(config.value("decoder_sparse_step", 1) == 1, "decoder_sparse_step", "every layer must have experts",
         "layers without");
    add_size("expert_count", family == "mixtral" ? "num_local_experts" : "num_experts");
    add_size("expert_used_count", "num_experts_per_tok");
  }
  if (family == "qwen3_moe") {
    must(config["norm_topk_prob"] == true, "norm_topk_prob",
         "llama.cpp normalizes the weights of the experts", "false");
    add_size("expert_feed_forward_length", "moe_intermediate_size");
  }
  if (architecture == "smollm3") {
    const OrderedJson& uses = config["no_rope_layers"];
    for (std::size_t i = 0; i < uses.size(); ++i)
      must(uses[i] == ((i + 1) % kNoRopeInterval == 0 ? 0 : 1), "no_rope_layers",
           fmt::format("llama.cpp has no positions in every layer number {}", kNoRopeInterval), uses.dump());
    must(!config.value("mlp_bias", false), "mlp_bias", "must be false", "true");
  }
  if (architecture == "qwen3" || architecture == "qwen3moe" || architecture == "smollm3" ||
      architecture == "olmo2")
    must(!config.value("attention_bias", false), "attention_bias", "must be false", "true");
  if (family == "phi3" || family == "granite" || family == "olmo2")
    must(head_dim * config["num_attention_heads"].get<std::int64_t>() == config["hidden_size"], "head_dim",
         "must be hidden_size / num_attention_heads", std::to_string(head_dim));
  if (family == "phi3")
    add("attention.sliding_window", GgufValue::u32(0));  // without the key old versions take one of 2047
  if (family == "olmo2")
    must(config["tie_word_embeddings"] == false, "tie_word_embeddings", "must be false", "true");
  if (family == "granite")
    for (const auto& [key, name] :
         {std::pair{"attention.scale", "attention_multiplier"},
          std::pair{"embedding_scale", "embedding_multiplier"},
          std::pair{"residual_scale", "residual_multiplier"}, std::pair{"logit_scale", "logits_scaling"}})
      add(key, GgufValue::f32(config[name].get<double>()));
  return metadata;
}

std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_tensors(const OrderedJson& config) {
  if (is_null(config, "rope_scaling")) return {};
  if (config["rope_scaling"].value("rope_type", "") != "llama3") return gguf_longrope_tensors(config);
  const OrderedJson& scaling = config["rope_scaling"];
  const std::int64_t head_dim = head_dim_of(config);
  std::vector<float> factors;
  for (std::int64_t pair = 0; pair < head_dim / 2; ++pair)
    factors.push_back(static_cast<float>(
        llama3_factor(config["rope_theta"].get<double>(), pair, head_dim, scaling["factor"].get<double>(),
                      scaling["low_freq_factor"].get<double>(), scaling["high_freq_factor"].get<double>(),
                      scaling["original_max_position_embeddings"].get<double>())));
  return {{kRopeFactors, factors}};
}

}  // namespace meshloom::trainer
