#include <algorithm>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/interop/family.h"

namespace meshloom::trainer {
namespace {

Family refused(const std::string& name, const std::string& architecture, const std::string& reason) {
  Family family;
  family.name = name;
  family.architecture = architecture;
  family.refusal = reason;
  return family;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all{llama_family(),
                                       mistral_family(),
                                       qwen2_family(),
                                       qwen3_family(),
                                       gpt2_family(),
                                       mixtral_family(),
                                       qwen3_moe_family(),
                                       refused("gemma2", "Gemma2ForCausalLM",
                                               "its layers are built, reading its checkpoints is not yet"),
                                       refused("qwen2_moe", "Qwen2MoeForCausalLM",
                                               "a shared expert with a gate of its own is not built yet")};
  return all;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (family.refusal.empty()) names.push_back(family.name);
    if (family.name != model_type) continue;
    if (!family.refusal.empty()) throw Error(where + ", model_type", family.refusal, "'" + model_type + "'");
    return family;
  }
  throw Error(where + ", model_type", "must be one of " + hal::join(names) + hal::suggestion(model_type, names),
              "'" + model_type + "'");
}

std::vector<std::pair<std::string, std::string>> activation_choices(const std::string& written) {
  std::vector<std::pair<std::string, std::string>> choices{
      {"\"silu\"", "Silu{}"},         {"\"swish\"", "Silu{}"},        {"\"gelu_pytorch_tanh\"", "GeluTanh{}"},
      {"\"gelu_new\"", "GeluTanh{}"}, {"\"gelu_fast\"", "GeluTanh{}"}, {"\"gelu\"", "Gelu{}"},
      {"\"relu\"", "Relu{}"}};
  const auto front = std::find_if(choices.begin(), choices.end(), [&](const auto& c) { return c.first == written; });
  std::rotate(choices.begin(), front, front + 1);
  return choices;
}

FieldRule tied_rule(const std::string& absent) {
  return {"tie_word_embeddings", FieldRule::Kind::choice, {"decoder.head"}, absent,
          {{"true", "TiedHead{}"}, {"false", "Linear{}"}}};
}

}  // namespace meshloom::trainer
