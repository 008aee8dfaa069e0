// Adapters as files: PEFT's directories for models of several families, runs of this project, and what is wrong with either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "layers/adapters/lora_slots.h"
#include "layers/models/trace.h"
#include "tests/message_of.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/interop/lora_files.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::LoraAdapter;
using trainer::LoraSlotsOfPlan;
using trainer::PeftConfig;

const nlohmann::ordered_json kPlainPeft{{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}};

LoraSlotsOfPlan slots_of(const trainer::TrainerConfig& recipe, std::int64_t rank) {
  trainer::TrainerConfig config = recipe;
  trainer::add_lora_slots(config, 2, rank, classes());
  const layers::Traced traced = layers::trace_decode(*config.model, catalog(), {.length = 8});
  trainer::Plan plan;
  for (const kernels::ValueId id : traced.program.inputs)
    plan.persistent_types[traced.program.value(id).name] = traced.program.value(id).type;
  return trainer::lora_slots_of(plan);
}

struct PeftTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float first = 0;  // value i is first + i / 1000
};

class LoraFiles : public testing::Test {
 protected:
  std::string write(const nlohmann::ordered_json& config, const std::vector<PeftTensor>& tensors) {
    const std::string directory = scratch_.path("adapter-" + std::to_string(count_++));
    std::filesystem::create_directory(directory);
    std::ofstream(directory + "/adapter_config.json") << config.dump();
    std::vector<trainer::StoredTensor> stored;
    for (const PeftTensor& tensor : tensors) stored.push_back({tensor.name, "F32", tensor.shape});
    std::ofstream file(directory + "/adapter_model.safetensors", std::ios::binary);
    file << trainer::safetensors_header(stored, {});
    for (const PeftTensor& tensor : tensors)
      for (std::int64_t i = 0; i < kernels::elements(tensor.shape); ++i) {
        const float value = tensor.first + static_cast<float>(i) / 1000;
        file.write(reinterpret_cast<const char*>(&value), sizeof value);
      }
    return directory;
  }
  LoraAdapter read(const std::string& directory, const trainer::TrainerConfig& recipe,
                   std::int64_t rank = 8) {
    return trainer::read_lora(directory, *recipe.model, recipe.sequence, slots_of(recipe, rank), catalog(),
                              classes(), [](const std::string&) {});
  }
  trainer::TrainerConfig imported(const std::string& name) {
    return recipe_of(import_quietly(model_directory(name), scratch_.path(name)).checkpoint);
  }

  Scratch scratch_;
  int count_ = 0;
};

std::string peft_refusal(const std::function<void(nlohmann::ordered_json&)>& change) {
  nlohmann::ordered_json json = kPlainPeft;
  change(json);
  return message_of([&] { trainer::parse_peft_config(json.dump(), "file"); });
}

TEST(PeftConfigs, GiveRanksAndFactors) {
  PeftConfig config = trainer::parse_peft_config(kPlainPeft.dump(), "file");
  EXPECT_EQ(config.rank_of("a.q_proj"), 4);
  EXPECT_DOUBLE_EQ(config.scale_of("a.q_proj"), 2);
  nlohmann::ordered_json json = kPlainPeft;
  json["use_rslora"] = true;
  json["rank_pattern"] = {{"q_proj", 9}, {"layers.1.mlp.up_proj", 16}, {"up_proj", 2}};
  json["alpha_pattern"] = {{"up_proj", 3.5}};
  for (const char* ignored : {"target_modules", "task_type", "base_model_name_or_path", "peft_version"})
    json[ignored] = "x";
  for (const char* neutral : {"use_dora", "lora_bias", "of_the_future"}) json[neutral] = false;
  json["modules_to_save"] = nullptr;
  json["loftq_config"] = nlohmann::json::object();
  json["bias"] = "none";
  config = trainer::parse_peft_config(json.dump(), "file");
  EXPECT_EQ(config.rank_of("layers.0.q_proj"), 9);
  EXPECT_EQ(config.rank_of("layers.1.mlp.up_proj"), 16);
  EXPECT_EQ(config.rank_of("layers.11.mlp.up_proj"), 2);
  EXPECT_EQ(config.rank_of("layers.0.my_q_proj"), 4);
  EXPECT_DOUBLE_EQ(config.scale_of("layers.1.mlp.up_proj"), 3.5 / 4);
  EXPECT_DOUBLE_EQ(config.scale_of("layers.1.q_proj"), 8.0 / 3);
}

TEST(PeftConfigs, AreRefusedByName) {
  EXPECT_EQ(peft_refusal([](auto&) {}), "no error");
  const auto refuses = [](const char* field, const nlohmann::ordered_json& value, const std::string& rule) {
    const std::string message = peft_refusal([&](auto& json) { json[field] = value; });
    EXPECT_THAT(message, HasSubstr("file, field "));
    EXPECT_THAT(message, HasSubstr(field));
    EXPECT_THAT(message, HasSubstr(rule));
  };
  refuses("peft_type", "LOHA", "must be \"LORA\"");
  for (const char* rank : {"0", "\"8\"", "1.5", "-1", "1000000", "[8]"})
    refuses("r", nlohmann::ordered_json::parse(rank), "must be an integer from 1 to 65536");
  refuses("lora_alpha", nullptr, "must be a number");
  refuses("use_rslora", 1, "must be true or false");
  refuses("rank_pattern", {{"q_(proj)", 2}}, "regular expressions are not built");
  refuses("alpha_pattern", {{"q_proj", "2"}}, "must be a number");
  refuses("rank_pattern", {1, 2}, "must be an object");
  refuses("init_lora_weights", "pissa", "leaves the model's weights");
  refuses("init_lora_weights", "olora", "leaves the model's weights");
  for (const char* name : {"use_dora", "lora_bias", "use_qalora", "of_the_future"})
    refuses(name, true, "is not built here");
  refuses("bias", "lora_only", "is not built here");
  refuses("modules_to_save", {"lm_head"}, "is not built here");
  refuses("layer_replication", {{0, 4}}, "is not built here");
  for (const char* name : {"peft_type", "r", "lora_alpha"})
    EXPECT_THAT(peft_refusal([&](auto& json) { json.erase(name); }), HasSubstr("must be given"));
  EXPECT_THAT(message_of([] { trainer::parse_peft_config("[]", "file"); }),
              HasSubstr("must be a JSON object"));
  EXPECT_THAT(message_of([] { trainer::parse_peft_config("{", "file"); }), HasSubstr("file"));
}

TEST_F(LoraFiles, OfPeftHaveTheModelsLayers) {
  const trainer::TrainerConfig recipe = imported("llama");
  const LoraSlotsOfPlan slots = slots_of(recipe, 8);
  const std::string path = "decoder/stack/layer1/feed_forward/down_proj",
                    name = "base_model.model.model.layers.1.mlp.down_proj";
  ASSERT_TRUE(slots.layers.contains(path));
  const auto [input, output] = slots.layers.at(path);
  const LoraAdapter adapter = read(write(kPlainPeft, {{name + ".lora_A.weight", {4, input}, 1},
                                                      {name + ".lora_B.weight", {output, 4}, 5}}),
                                   recipe);
  ASSERT_EQ(adapter.layers.size(), 1u);
  const LoraAdapter::Layer& layer = adapter.layers.at(path);
  EXPECT_EQ(layer.rank, 4);
  EXPECT_FLOAT_EQ(layer.a.at(3), 1.003F);
  EXPECT_FLOAT_EQ(layer.b.at(3), 2 * 5.003F);  // times alpha / r
}

// GPT-2 has one matrix for queries, keys and values.
TEST_F(LoraFiles, OfPeftArePartedAsTheirModelIs) {
  const trainer::TrainerConfig recipe = imported("gpt2");
  const LoraSlotsOfPlan slots = slots_of(recipe, 8);
  const std::string path = "decoder/stack/layer0/attention/",
                    name = "base_model.model.transformer.h.0.attn.c_attn";
  const auto [input, output] = slots.layers.at(path + "q_proj");
  const LoraAdapter adapter = read(
      write(kPlainPeft, {{name + ".lora_A.weight", {4, input}}, {name + ".lora_B.weight", {3 * output, 4}}}),
      recipe);
  ASSERT_EQ(adapter.layers.size(), 3u);
  std::size_t part = 0;
  for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
    const LoraAdapter::Layer& layer = adapter.layers.at(path + projection);
    EXPECT_EQ(layer.a, adapter.layers.begin()->second.a);
    EXPECT_FLOAT_EQ(layer.b.at(1), 2 * static_cast<float>(part * layer.b.size() + 1) / 1000);
    ++part;
  }
}

TEST_F(LoraFiles, OfPeftAreRefusedWhereTheyDoNotFit) {
  const trainer::TrainerConfig recipe = imported("llama");
  const auto [input, output] = slots_of(recipe, 8).layers.at("decoder/stack/layer0/attention/q_proj");
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj";
  const PeftTensor a{name + ".lora_A.weight", {4, input}}, b{name + ".lora_B.weight", {output, 4}};
  const auto refusal = [&](const std::vector<PeftTensor>& tensors,
                           const nlohmann::ordered_json& config = kPlainPeft, std::int64_t rank = 8) {
    return message_of([&] { read(write(config, tensors), recipe, rank); });
  };
  EXPECT_EQ(refusal({a, b}), "no error");
  EXPECT_THAT(refusal({a}), HasSubstr("must come together; found lora_A alone"));
  EXPECT_THAT(refusal({}), HasSubstr("found none"));
  EXPECT_THAT(refusal({a, b}, kPlainPeft, 2), HasSubstr("--max-lora-rank"));
  EXPECT_THAT(refusal({a, {b.name, {output + 1, 4}}}), HasSubstr("the shape must be"));
  EXPECT_THAT(refusal({a, {b.name, {output, 4}, NAN}}), HasSubstr("every value must be finite"));
  EXPECT_THAT(refusal({a, b, {"base_model.model.model.norm.lora_A.weight", {4, input}}}),
              HasSubstr("must be of a Linear that the server has slots for"));
  for (const char* other :
       {"x", "base_model.model.lora_A.weight", "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"})
    EXPECT_THAT(refusal({a, b, {other, {1}}}), HasSubstr("must be lora_A or lora_B of a Linear"));
  EXPECT_THAT(message_of([&] { read(scratch_.path("none"), recipe); }),
              HasSubstr("must be the directory of an adapter"));
  const std::string directory = write(kPlainPeft, {a, b});
  std::filesystem::rename(directory + "/adapter_model.safetensors", directory + "/adapter_model.bin");
  EXPECT_THAT(message_of([&] { read(directory, recipe); }), HasSubstr("pickled files are not read"));
}

TEST_F(LoraFiles, OfRunsAreThoseOfTheirLora) {
  const std::string text = scratch_.file("text.txt", sample_text(6000)), run = scratch_.path("base");
  const auto train = [&](const std::string& more) {
    return meshloom("train " + more + " --device cpu --steps 2 --sample 0 --quiet --data " + text).code;
  };
  ASSERT_EQ(train("tiny --out " + run), 0);
  const std::string init = "--init " + run + " --out ";
  ASSERT_EQ(train(init + scratch_.path("lora") +
                  " --modify 'Adapt{with=Lora{rank=3 alpha=6} where=\"**.{q,up}_proj\"}'"),
            0);
  ASSERT_EQ(train(init + scratch_.path("dora") + " --modify 'Adapt{with=Dora{rank=3}}'"), 0);
  const trainer::TrainerConfig recipe = recipe_of(trainer::open_newest(run, [](const std::string&) {}).path);
  const LoraAdapter adapter = read(scratch_.path("lora"), recipe);
  const trainer::Checkpoint checkpoint =
      trainer::open_newest(scratch_.path("lora"), [](const std::string&) {});
  const std::string path = "decoder/stack/layer0/attention/q_proj";
  ASSERT_TRUE(adapter.layers.contains(path));
  const LoraAdapter::Layer& layer = adapter.layers.at(path);
  EXPECT_EQ(layer.rank, 3);
  EXPECT_EQ(layer.a, read_tensor<float>(checkpoint.model, path + "/lora_a"));
  std::vector<float> b = read_tensor<float>(checkpoint.model, path + "/lora_b");
  for (float& value : b) value *= 2;  // alpha / rank
  EXPECT_EQ(layer.b, b);
  EXPECT_THAT(message_of([&] { read(scratch_.path("dora"), recipe); }), HasSubstr("must be Lora"));
  EXPECT_THAT(message_of([&] { read(run, recipe); }), HasSubstr("learner.train=adapters"));
  EXPECT_THAT(message_of([&] { read(scratch_.path("lora"), recipe, 2); }), HasSubstr("--max-lora-rank"));
}

}  // namespace
}  // namespace meshloom::tests
