// What classes say of themselves, and which of their fields one can keep when it takes another's place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "layers/config/describe.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/config/tree_modifiers.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::trainer {
namespace {

using layers::ClassDescription;
using layers::FieldDescription;
using layers::InterfaceDescription;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tests::meshloom;
using tests::message_of;

bool is_sentence(const std::string& text) {
  return text.size() > 8 && text.ends_with('.') && !text.ends_with("..") && !std::islower(text.front()) &&
         text.find('\n') == std::string::npos;
}

TEST(Classes, EveryClassAndFieldHasASentence) {
  const layers::ClassTable classes = recipe_classes();
  std::map<std::string, std::string>
      said;  // sentence -> whose: a class that has none would say its interface's
  for (const InterfaceDescription& interface : layers::describe_interfaces(classes)) {
    EXPECT_FALSE(interface.about.empty()) << interface.name;
    said.emplace(interface.about, interface.name);
    EXPECT_EQ(interface.name.find("::"), std::string::npos) << interface.name;
  }
  for (const std::string& name : classes.names()) {
    const ClassDescription description = layers::describe_class(classes, name);
    EXPECT_FALSE(description.about.empty()) << name;
    EXPECT_TRUE(description.about.ends_with('.')) << name << ": " << description.about;
    const auto [it, fresh] = said.emplace(description.about, name);
    EXPECT_TRUE(fresh) << name << " says what " << it->second << " says";
    for (const FieldDescription& field : description.fields)
      EXPECT_TRUE(is_sentence(field.about)) << name << "." << field.name << ": '" << field.about << "'";
  }
}

TEST(Classes, DefaultsAreInTheirRanges) {
  const layers::ClassTable classes = recipe_classes();
  for (const std::string& name : classes.names()) {
    const std::unique_ptr<layers::Config> config = classes.make(name);
    EXPECT_EQ(message_of([&] { layers::parse(layers::print(*config), classes, name); }), "no error") << name;
  }
}

// For every interface, and every field that at least two of its classes have: the classes in which it means
// the same, and after each '|' those in which it means something else. Replacing one class by another keeps
// the field among the former, and not across a '|'. A new class with such a field must be added where it
// belongs. Interfaces whose classes all belong to a wider interface are not listed.
constexpr const char* kMeanings = R"(
Initializer.std: DepthScaledNormal Normal TruncatedNormal
Input.chat_template: JsonlFiles JsonlPrompts
Input.chat_time: JsonlFiles JsonlPrompts
Input.completion: JsonlFiles JsonlPairs
Input.end_of_text: JsonlFiles JsonlPairs
Input.eval_files: JsonlFiles JsonlPairs JsonlPrompts TextFiles
Input.eval_fraction: JsonlFiles JsonlPairs JsonlPrompts TextFiles
Input.files: JsonlFiles JsonlPairs JsonlPrompts TextFiles
Input.pack: JsonlFiles JsonlPairs
Input.prompt: JsonlFiles JsonlPairs JsonlPrompts
Input.shuffle: JsonlFiles JsonlPairs JsonlPrompts TextFiles
Input.tokenizer: JsonlFiles JsonlPairs JsonlPrompts TextFiles
Input.too_long: JsonlFiles JsonlPairs | JsonlPrompts
KVCache.codec: ContiguousCache LatentCache PagedCache WindowCache
LanguageModel.decoder: CausalLM EncoderDecoder
LanguageModel.loss: CausalLM EncoderDecoder
LanguageModel.vocab_size: CausalLM EncoderDecoder
Layer.activation: FeedForward MoE
Layer.alpha: Dora Lora
Layer.attention: HybridNormLayer ParallelLayer PostNormLayer ScaledResidualLayer TransformerLayer
Layer.attention_factor: LongRotaryPosition | YarnRotaryPosition
Layer.attention_norm: HybridNormLayer ParallelLayer PostNormLayer ScaledResidualLayer TransformerLayer
Layer.base: Dora Dropout Lora LoraSlots Monitor ScaledHead SigmoidGated SoftCap StochasticDepth
Layer.bias: BlockQuantizedLinear Linear Nf4Linear QuantizedLinear
Layer.cache: Attention CrossLayerAttention LatentAttention | CrossAttention
Layer.cross_attention: HybridNormLayer ParallelLayer PostNormLayer ScaledResidualLayer TransformerLayer
Layer.down_proj: FeedForward MoE
Layer.dropout: Attention CrossAttention | Dora Lora
Layer.eps: GemmaRMSNorm LayerNorm RMSNorm
Layer.factor: LinearRotaryPosition Llama3RotaryPosition NtkRotaryPosition YarnRotaryPosition
Layer.feed_forward: HybridNormLayer ParallelLayer PostNormLayer ScaledResidualLayer TransformerLayer
Layer.feed_forward_norm: HybridNormLayer ParallelLayer PostNormLayer ScaledResidualLayer TransformerLayer
Layer.gate_proj: FeedForward MoE
Layer.head_dim: Attention CrossAttention CrossLayerAttention | LatentAttention
Layer.hidden_dim: FeedForward MoE
Layer.init: BlockQuantizedLinear Linear Nf4Linear QuantizedLinear | Dora Lora | LearnedPosition
Layer.k_proj: Attention CrossAttention LatentAttention
Layer.layer: HeterogeneousStack Stack
Layer.mask: Attention CrossLayerAttention LatentAttention
Layer.max_length: LearnedPosition SequenceLimit
Layer.norm: JointNormProjection | QKNormProjection
Layer.num_heads: Attention CrossAttention CrossLayerAttention LatentAttention
Layer.num_kv_heads: Attention CrossAttention
Layer.num_layers: HeterogeneousStack Stack
Layer.o_proj: Attention CrossAttention CrossLayerAttention LatentAttention
Layer.original_length: Llama3RotaryPosition LongRotaryPosition YarnRotaryPosition
Layer.pairing: LinearRotaryPosition Llama3RotaryPosition LongRotaryPosition NtkRotaryPosition RotaryPosition YarnRotaryPosition | SinusoidalPosition
Layer.positions: Attention CrossLayerAttention LatentAttention
Layer.projection: JointNormProjection | QKNormProjection
Layer.q_proj: Attention CrossAttention CrossLayerAttention LatentAttention
Layer.rank: Dora Lora | LoraSlots
Layer.rate: Dropout | StochasticDepth
Layer.report_entropy: Attention CrossAttention
Layer.rotary_dims: LinearRotaryPosition Llama3RotaryPosition LongRotaryPosition NtkRotaryPosition RotaryPosition YarnRotaryPosition
Layer.scale: Attention CrossAttention CrossLayerAttention LatentAttention
Layer.sink: Attention CrossAttention
Layer.soft_cap: Attention CrossAttention CrossLayerAttention
Layer.theta: LinearRotaryPosition Llama3RotaryPosition LongRotaryPosition NtkRotaryPosition RotaryPosition YarnRotaryPosition | SinusoidalPosition
Layer.up_proj: FeedForward MoE
Layer.v_proj: Attention CrossAttention LatentAttention
Learner.beta1: Adam AdamW AdamW8bit AdamWIndependent Muon | Lion
Learner.beta2: Adam AdamW AdamW8bit AdamWIndependent Muon | Lion
Learner.clip_norm: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.ema: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.eps: Adam AdamW AdamW8bit AdamWIndependent Muon RMSprop
Learner.momentum: Muon Sgd | RMSprop
Learner.nesterov: Muon Sgd
Learner.parameter_groups: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.peak_learning_rate: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.schedule: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.train: Adafactor Adam AdamW AdamW8bit AdamWIndependent Lion Muon RMSprop Sgd
Learner.weight_decay: Adafactor AdamW AdamW8bit Lion Muon | Adam RMSprop Sgd | AdamWIndependent
Modifier.class: Adapt Quantize Replace SetWhere Wrap
Modifier.except: Adapt Quantize Replace SetWhere Wrap | AddParameterGroup
Modifier.having: Adapt Quantize Replace SetWhere Wrap
Modifier.matches: Adapt Quantize Replace SetWhere Wrap
Modifier.path: SetField | SetKernel
Modifier.value: SetField SetWhere
Modifier.where: Adapt Quantize Replace SetWhere Wrap | AddParameterGroup
Modifier.with: Adapt | Quantize Replace | Wrap
RouterRegularizer.weight: LoadBalancingLoss | RouterZLoss
Schedule.final_fraction: WarmupCosine WarmupPolynomial WarmupStableDecay
Schedule.total_steps: WarmupCosine WarmupPolynomial WarmupStableDecay
Schedule.warmup_steps: WarmupConstant WarmupCosine WarmupInverseSqrt WarmupPiecewise WarmupPolynomial WarmupStableDecay
TokenEmbedding.base: DropoutEmbedding ScaledEmbedding
TokenEmbedding.init: BlockQuantizedEmbedding Embedding
TokenLoss.beta: DPOLoss | SimPOLoss
TokenLoss.label_smoothing: DPOLoss | RegularizedCrossEntropy
Tokenizer.chat_template: SentencePiece TokenizerJson
Tokenizer.config: SentencePiece TokenizerJson
Tokenizer.end_of_text: SentencePiece TokenizerJson
Tokenizer.eos_token_ids: SentencePiece TokenizerJson
)";

TEST(Classes, FieldsOfOneNameAreKeptWhereTheyMeanTheSame) {
  const layers::ClassTable classes = recipe_classes();
  const std::vector<InterfaceDescription> interfaces = layers::describe_interfaces(classes);
  std::string text = "\n";
  for (const InterfaceDescription& interface : interfaces) {
    const std::set<std::string> mine(interface.classes.begin(), interface.classes.end());
    const bool within =
        std::any_of(interfaces.begin(), interfaces.end(), [&](const InterfaceDescription& other) {
          return other.classes.size() > mine.size() &&
                 std::includes(other.classes.begin(), other.classes.end(), mine.begin(), mine.end());
        });
    if (within) continue;
    std::map<std::string, std::vector<std::pair<std::string, std::vector<std::string>>>>
        fields;  // by meaning
    for (const std::string& name : interface.classes)
      for (const FieldDescription& field : layers::describe_class(classes, name).fields) {
        auto& groups = fields[field.name];
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const auto& g) { return g.first == field.meaning; });
        if (group == groups.end()) group = groups.insert(groups.end(), {field.meaning, {}});
        group->second.push_back(name);
      }
    for (const auto& [name, groups] : fields) {
      std::size_t count = 0;
      std::string line = interface.name + "." + name + ":";
      for (const auto& [meaning, owners] : groups) {
        count += owners.size();
        line += (line.ends_with(':') ? " " : " | ") + hal::join(owners, " ");
      }
      if (count > 1) text += line + "\n";
    }
  }
  EXPECT_EQ(text, kMeanings);
}

TEST(Classes, AFieldThatMeansSomethingElseIsNotCarriedOver) {
  const layers::ClassTable classes = recipe_classes();
  const auto replaced = [&](const char* set, const char* path, const char* from, const char* to,
                            std::vector<std::string>* dropped = nullptr) {
    TrainerConfig config = tiny();
    if (*set) layers::set(config, path, set, classes);
    layers::replace(config, from, to, classes, dropped);
    return config;
  };
  // AdamW adds its eps to a root, Adafactor to squares.
  EXPECT_EQ(layers::get(replaced("1e-8", "learner.eps", "AdamW", "Adafactor"), "learner.square_eps"),
            "1e-30");
  // The decay of AdamW is times the rate, that of Adam in the gradient, that of AdamWIndependent apart from
  // both.
  std::vector<std::string> dropped;
  EXPECT_EQ(
      layers::get(replaced("0.2", "learner.weight_decay", "AdamW", "Adam", &dropped), "learner.weight_decay"),
      "0");
  EXPECT_THAT(dropped, ElementsAre("learner.weight_decay (which means something else there)"));
  EXPECT_EQ(layers::get(replaced("0.2", "learner.weight_decay", "AdamW", "AdamWIndependent"),
                        "learner.weight_decay"),
            "1e-04");
  EXPECT_EQ(layers::get(replaced("0.2", "learner.weight_decay", "AdamW", "Lion"), "learner.weight_decay"),
            "0.2");
  // beta2 of Lion decays what beta1 of AdamW does.
  EXPECT_EQ(layers::get(replaced("0.97", "learner.beta2", "AdamW", "Lion"), "learner.beta2"), "0.99");
  // A Linear's init is that of its matrix, Lora's that of the adapter's.
  TrainerConfig config = tiny();
  layers::set(config, "model.decoder.stack.layer.attention.q_proj", "Linear{init=Normal{std=0.5}}", classes);
  layers::replace(config, {.where = "**.q_proj"}, "Lora{}", classes);
  EXPECT_EQ(layers::get(config, "model.decoder.stack.layer.attention.q_proj.init.gain"), "1");
  // What means the same is kept.
  EXPECT_EQ(layers::get(replaced("1e-3", "model.decoder.norm.eps", "RMSNorm", "LayerNorm"),
                        "model.decoder.norm.eps"),
            "0.001");
  EXPECT_EQ(layers::get(replaced("20", "learner.schedule.warmup_steps", "WarmupCosine",
                                 "WarmupStableDecay{decay_steps=9}"),
                        "learner.schedule.warmup_steps"),
            "20");
  // The modifier refuses to lose what was set.
  config = tiny();
  layers::set(config, "learner.eps", "1e-6", classes);
  Replace modifier;
  modifier.selection.of_class = "AdamW";
  modifier.with = std::string("Adafactor{}");
  EXPECT_THAT(message_of([&] { modifier.apply(config, classes); }), HasSubstr("learner.eps"));
}

struct Renamed {
  const char *owner, *before, *now, *value;
};
// Every field that ever had another name, so that older recipes and checkpoints go on being read.
constexpr Renamed kRenamed[] = {
    {"Adafactor", "eps", "square_eps", "1e-25"},
    {"Capacity", "least", "min", "3"},
    {"ChunkedLoss", "rows", "chunk_size", "7"},
    {"YarnRotaryPosition", "whole_pairs", "truncate", "false"},
    {"Adafactor", "clip", "clip_threshold", "0.5"},
    {"Adafactor", "relative", "scale_parameter", "false"},
    {"Adafactor", "least_size", "min_scale", "0.01"},
    {"ParameterGroup", "decay", "weight_decay_factor", "0.5"},
    {"ParameterGroup", "learning_rate", "learning_rate_factor", "0.5"},
    {"AddParameterGroup", "decay", "weight_decay_factor", "0.5"},
    {"AddParameterGroup", "learning_rate", "learning_rate_factor", "0.5"},
    {"Adafactor", "rules", "parameter_groups", "[]"},
    {"Adam", "rules", "parameter_groups", "[]"},
    {"AdamW", "rules", "parameter_groups", "[]"},
    {"AdamWIndependent", "rules", "parameter_groups", "[]"},
    {"Lion", "rules", "parameter_groups", "[]"},
    {"AdamW8bit", "rules", "parameter_groups", "[]"},
    {"Muon", "rules", "parameter_groups", "[]"},
    {"RMSprop", "rules", "parameter_groups", "[]"},
    {"Sgd", "rules", "parameter_groups", "[]"},
};

TEST(Classes, FormerNamesOfFieldsAreRead) {
  const layers::ClassTable classes = recipe_classes();
  std::set<std::string> stated;
  for (const Renamed& field : kRenamed) {
    stated.insert(std::string(field.owner) + "." + field.before);
    const std::string head = std::string(field.owner) + "{";
    const auto config = layers::parse(head + field.before + "=" + field.value + "}", classes, "old");
    EXPECT_EQ(layers::get(*config, field.now), field.value);
    EXPECT_EQ(layers::get(*config, field.before), field.value);
    EXPECT_THAT(layers::print(*config), Not(HasSubstr(std::string("  ") + field.before + " = ")));
    EXPECT_THAT(message_of([&] {
                  layers::parse(
                      head + field.before + "=" + field.value + " " + field.now + "=" + field.value + "}",
                      classes, "both");
                }),
                HasSubstr("a field must be given only once"));
    layers::set(*config, field.before, field.value, classes);
    EXPECT_EQ(layers::get(*config, field.now), field.value);
  }
  for (const std::string& name : classes.names())
    for (const FieldDescription& field : layers::describe_class(classes, name).fields) {
      // Their values have former forms too: FormerValuesOfFieldsAreRead, former_names_test.cpp.
      if (field.former_name.empty() || name == "RematRule" || field.name == "codec") continue;
      EXPECT_TRUE(stated.count(name + "." + field.former_name)) << name << "." << field.former_name;
    }
}

TEST(Classes, FormerValuesOfFieldsAreRead) {
  const layers::ClassTable classes = recipe_classes();
  for (const auto& [before, now] : {std::pair{"true", "save"}, {"false", "recompute"}}) {
    const auto config = layers::parse(std::string("RematRule{save=") + before + "}", classes, "old");
    const std::string quoted = '"' + std::string(now) + '"';
    EXPECT_EQ(layers::get(*config, "policy"), quoted);
    layers::set(*config, "save", now == std::string("save") ? "false" : "true", classes);
    EXPECT_NE(layers::get(*config, "policy"), quoted);
    layers::set(*config, "save", before, classes);
    EXPECT_EQ(layers::get(*config, "policy"), quoted);
    EXPECT_THAT(layers::print(*config), HasSubstr(now));
  }
  EXPECT_THAT(message_of([&] { layers::parse("RematRule{save=maybe}", classes, "old"); }),
              HasSubstr("RematRule.policy must be save, recompute or offload; found 'maybe'"));
}

TEST(ClassesCommand, ListsInterfacesClassesAndFields) {
  const std::string all = meshloom("classes").out;
  EXPECT_THAT(all, HasSubstr("Mask               Which positions a position may attend to."));
  EXPECT_THAT(all, HasSubstr("Causal, Full, LeftRightWindow, MaskFunction, PrefixLM, SlidingWindow"));
  EXPECT_THAT(all, HasSubstr("LanguageModel"));
  const std::string mask = meshloom("classes Mask").out;
  EXPECT_THAT(
      mask,
      HasSubstr(
          "SlidingWindow (Mask)\n  A position attends to itself and to a number of positions just before it "
          "(Beltagy et al., 2020).\n"
          "  window = required    integer, at least 1\n      The number of positions"));
  const std::string adamw = meshloom("classes AdamW").out;
  EXPECT_THAT(adamw, HasSubstr("  peak_learning_rate = required    number, at least 0 and below 1e6\n"));
  EXPECT_THAT(adamw, HasSubstr("  schedule = ConstantSchedule    Schedule\n"));
  EXPECT_THAT(meshloom("classes Adafactor").out, HasSubstr("Formerly called eps."));
  const auto json = nlohmann::json::parse(meshloom("classes --json").out);
  EXPECT_GT(json["classes"].size(), 80u);
  for (const auto& one : json["classes"])
    for (const auto& field : one["fields"])
      for (const char* key : {"name", "type", "default", "about"})
        EXPECT_FALSE(field[key].is_null()) << field;
  const auto one = nlohmann::json::parse(meshloom("classes Dropout --json").out);
  EXPECT_EQ(one["classes"][0]["fields"][1],
            nlohmann::json::parse(
                R"({"name": "rate", "type": "number", "default": "0.1", "range": "at least 0 and below 1",
                                      "about": "The probability that an element becomes 0 in training."})"));
}

}  // namespace
}  // namespace meshloom::trainer
