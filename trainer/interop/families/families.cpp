#include <algorithm>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Each is defined in its own file; family.h declares those that other families build on.
Family llama_family(), gpt2_family(), mixtral_family(), qwen3_moe_family(), qwen2_moe_family(),
    gemma2_family(), gemma3_family(), seed_oss_family(), smollm3_family(), phi3_family(), granite_family(),
    olmo2_family();

// Export takes the first that can describe the model.
const std::vector<Family>& families() {
  static const std::vector<Family> all{
      llama_family(),    mistral_family(),   qwen2_family(),     qwen3_family(),   gpt2_family(),
      mixtral_family(),  qwen3_moe_family(), qwen2_moe_family(), gemma2_family(),  gemma3_family(),
      seed_oss_family(), smollm3_family(),   phi3_family(),      granite_family(), olmo2_family()};
  return all;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.push_back(family.name);
    if (family.name == model_type) return family;
  }
  throw Error(where + ", model_type", "must be one of " + hal::join(names), "'" + model_type + "'");
}

std::vector<std::pair<std::string, std::string>> activation_choices(const std::string& written) {
  std::vector<std::pair<std::string, std::string>> choices{{"\"silu\"", "Silu{}"},
                                                           {"\"swish\"", "Silu{}"},
                                                           {"\"gelu_pytorch_tanh\"", "GeluTanh{}"},
                                                           {"\"gelu_new\"", "GeluTanh{}"},
                                                           {"\"gelu_fast\"", "GeluTanh{}"},
                                                           {"\"gelu\"", "Gelu{}"},
                                                           {"\"relu\"", "Relu{}"}};
  const auto front =
      std::find_if(choices.begin(), choices.end(), [&](const auto& c) { return c.first == written; });
  std::rotate(choices.begin(), front, front + 1);
  return choices;
}

FieldRule tied_rule(const std::string& absent) {
  return {"tie_word_embeddings",
          FieldRule::Kind::choice,
          {"decoder.head"},
          absent,
          {{"true", "TiedHead{}"}, {"false", "Linear{}"}}};
}

FieldRule only_rule(const std::string& name, const std::string& value, const std::string& null) {
  return {name, FieldRule::Kind::choice, {}, value, {{value, ""}}, null};
}

}  // namespace meshloom::trainer
