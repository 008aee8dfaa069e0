// What can be wrong with a Hugging Face directory: one line that names the file, the place, the rule and what
// was found.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "kernels/core/rng.h"
#include "layers/block/heterogeneous_stack.h"
#include "layers/config/tree.h"
#include "layers/moe/moe.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/interop/config_json.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A copy of a model that a test may damage.
class BadModels : public testing::Test {
 protected:
  std::string copy(const std::string& name) {
    const std::string path = scratch_.path("model");
    fs::remove_all(path);
    fs::copy(model_directory(name), path, fs::copy_options::recursive);
    return path;
  }
  std::string error_of(const std::string& directory) {
    fs::remove_all(scratch_.path("out"));
    try {
      import_quietly(directory, scratch_.path("out"));
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      EXPECT_FALSE(fs::exists(scratch_.path("out") + "/step-00000000"));
      return error.what();
    }
    return {};
  }
  std::string error_with(const std::string& name, const std::function<void(OrderedJson&)>& spoil) {
    const std::string directory = copy(name);
    OrderedJson json = OrderedJson::parse(read_text(directory + "/config.json"));
    spoil(json);
    write_file(directory + "/config.json", json.dump());
    return error_of(directory);
  }
  // Edits the header of model.safetensors; keeps the data, or `data_bytes` of it.
  std::string error_with_header(const std::string& name, const std::function<void(OrderedJson&)>& spoil) {
    const std::string directory = copy(name), path = directory + "/model.safetensors";
    const std::string whole = read_text(path);
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), 8);
    OrderedJson json = OrderedJson::parse(whole.substr(8, length));
    spoil(json);
    const std::string header = json.dump();
    std::uint64_t size = header.size();
    write_file(path,
               std::string(reinterpret_cast<const char*>(&size), 8) + header + whole.substr(8 + length));
    return error_of(directory);
  }
  static void holds(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' not in: " << text;
  }
  Scratch scratch_;
};

TEST_F(BadModels, Fields) {
  const std::vector<std::tuple<std::string, std::function<void(OrderedJson&)>, std::vector<std::string>>>
      cases{
          {"llama",
           [](OrderedJson& j) { j["model_type"] = "lama"; },
           {"config.json", "model_type", "must be one of llama, mistral", "gemma2", "; found 'lama'"}},
          {"llama",
           [](OrderedJson& j) { j["model_type"] = "gemma"; },
           {"model_type", "gemma2", "; found 'gemma'"}},
          {"llama",
           [](OrderedJson& j) {
             j["model_type"] = "gemma3";
             j["vision_config"] = {{"model_type", "siglip_vision_model"}};
           },
           {"config.json", "field vision_config: must be absent", "text alone", "gemma3_text", "\"gemma3\""}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"factor", 2.0}};
           },
           {"rope_scaling.rope_type", "must be present", "factor"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_parameters"] = {{"rope_type", "default"}, {"mrope_section", {1, 2}}};
           },
           {"rope_parameters.'mrope_section'", "must be a known field"}},
          {"llama", [](OrderedJson& j) { j["rope_theta"] = nullptr; }, {"rope_theta", "must be present"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"rope_type", "yarn"}};
           },
           {"rope_scaling.factor", "must be present"}},
          {"llama",
           [](OrderedJson& j) { j["qk_layernorm"] = true; },
           {"field 'qk_layernorm'", "may change the model", "found 'true'"}},
          {"llama",
           [](OrderedJson& j) { j["expert_dropout"] = 0.1; },
           {"field 'expert_dropout'", "may change the model", "found '0.1'"}},
          {"llama",
           [](OrderedJson& j) {
             j["per_layer_config"] = {{"0", {{"num_attention_heads", 2}}}};
           },
           {"per_layer_config"}},
          {"llama", [](OrderedJson& j) { j["hidden_size"] = nullptr; }, {"hidden_size", "must not be null"}},
          {"qwen2",
           [](OrderedJson& j) {
             j["layer_types"] = {"sliding_attention", "full_attention"};
           },
           {"layer_types", "must hold no sliding_attention", "use_sliding_window"}},
          {"qwen2",
           [](OrderedJson& j) { j["use_sliding_window"] = 1; },
           {"use_sliding_window", "true or false"}},
          {"qwen3-moe",
           [](OrderedJson& j) { j["num_local_experts"] = 5; },
           {"gate.weight", "(5, 16)", "(6, 16)"}},
          {"gemma2",
           [](OrderedJson& j) { j["query_pre_attn_scalar"] = 24.5; },
           {"query_pre_attn_scalar", "an integer"}},
          {"gemma2",
           [](OrderedJson& j) { j["use_bidirectional_attention"] = true; },
           {"use_bidirectional_attention", "must be false"}},
          {"gpt2", [](OrderedJson& j) { j["hidden_size"] = 32; }, {"(61, 32)", "(61, 16)"}},
          {"qwen2-moe",
           [](OrderedJson& j) { j["decoder_sparse_step"] = 0; },
           {"decoder_sparse_step", "1 to 2^24", "0"}},
          {"qwen2-moe-step",
           [](OrderedJson& j) { j.erase("decoder_sparse_step"); },
           {"layers.0.mlp.gate.weight", "none"}},
          {"qwen2-moe-step",
           [](OrderedJson& j) { j["intermediate_size"] = 21; },
           {"mlp.gate_proj.weight", "(21, 16)", "(20, 16)"}},
          {"qwen2-moe-step",
           [](OrderedJson& j) { j["intermediate_size"] = "20"; },
           {"intermediate_size", "1 to 2^24"}},
          {"gemma2",
           [](OrderedJson& j) { j["tie_word_embeddings"] = false; },
           {"tie_word_embeddings", "must be true"}},
          {"gemma2",
           [](OrderedJson& j) { j["query_pre_attn_scalar"] = 0; },
           {"query_pre_attn_scalar", "above 0"}},
          {"gemma2", [](OrderedJson& j) { j["sliding_window"] = -5; }, {"sliding_window", "1 to 2^24", "-5"}},
          {"gemma2",
           [](OrderedJson& j) { j["layer_types"] = {"full_attention"}; },
           {"layer_types", "a list of 3"}},
          {"gemma2",
           [](OrderedJson& j) {
             j["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
           },
           {"layer_types", "sliding_attention", "linear_attention"}},
          {"mixtral",
           [](OrderedJson& j) { j["output_router_logits"] = true; },
           {"output_router_logits", "must be false"}},
          {"mixtral",
           [](OrderedJson& j) { j["router_jitter_noise"] = 0.1; },
           {"router_jitter_noise", "must be 0.0"}},
          {"mixtral",
           [](OrderedJson& j) { j["num_local_experts"] = 5; },
           {"gate.weight", "(5, 16)", "(4, 16)"}},
          {"mixtral",
           [](OrderedJson& j) { j["num_experts_per_tok"] = 9; },
           {"gating", "number of experts, 4", "9"}},
          {"qwen3-moe",
           [](OrderedJson& j) { j["mlp_only_layers"] = {1}; },
           {"layers.1.mlp.gate_proj.weight", "none"}},
          {"qwen3-moe",
           [](OrderedJson& j) { j["mlp_only_layers"] = {2}; },
           {"mlp_only_layers", "layers, from 0 to 1", "2"}},
          {"qwen3-moe",
           [](OrderedJson& j) { j["mlp_only_layers"] = 1; },
           {"mlp_only_layers", "a list of layers", "1"}},
          {"llama", [](OrderedJson& j) { j.erase("hidden_size"); }, {"hidden_size", "must be present"}},
          {"llama", [](OrderedJson& j) { j["hidden_size"] = -16; }, {"hidden_size", "integer", "-16"}},
          {"llama", [](OrderedJson& j) { j["hidden_size"] = 16.5; }, {"hidden_size", "integer", "16.5"}},
          {"llama",
           [](OrderedJson& j) { j["hidden_size"] = 1ull << 40; },
           {"hidden_size", "16777216", "1099511627776"}},
          {"llama", [](OrderedJson& j) { j["num_hidden_layers"] = 1000000; }, {"num_hidden_layers", "4096"}},
          {"llama", [](OrderedJson& j) { j["num_attention_heads"] = 3; }, {"num_heads"}},
          {"llama", [](OrderedJson& j) { j["hidden_act"] = "mish"; }, {"hidden_act", "silu", "mish"}},
          {"llama", [](OrderedJson& j) { j["rms_norm_eps"] = 0; }, {"rms_norm_eps", "above 0"}},
          {"llama", [](OrderedJson& j) { j["rope_theta"] = "big"; }, {"rope_theta", "above 0", "big"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"type", "longrope"}, {"factor", 4.0}};
           },
           {"rope_scaling", "longrope"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"type", "linear"}};
           },
           {"rope_scaling", "factor", "must be present"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"type", "linear"}, {"factor", 0.5}};
           },
           {"factor", "at least 1", "0.5"}},
          {"llama",
           [](OrderedJson& j) { j["partial_rotary_factor"] = 0.5; },
           {"partial_rotary_factor", "must be 1", "0.5"}},
          {"llama",
           [](OrderedJson& j) {
             j["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
           },
           {"rope_type", "dynamic"}},
          {"llama",
           [](OrderedJson& j) {
             j["quantization_config"] = {{"bits", 4}};
           },
           {"quantization_config"}},
          {"llama",
           [](OrderedJson& j) { j["architectures"] = {"LlamaForSequenceClassification"}; },
           {"architectures", "LlamaForCausalLM"}},
          {"llama",
           [](OrderedJson& j) { j["tie_word_embeddings"] = true; },
           {"lm_head.weight", "tie_word_embeddings"}},
          {"llama", [](OrderedJson& j) { j["attention_bias"] = true; }, {"q_proj.bias", "none"}},
          {"llama",
           [](OrderedJson& j) { j["vocab_size"] = 62; },
           {"model.embed_tokens.weight", "(62, 16)", "(61, 16)"}},
          {"llama",
           [](OrderedJson& j) { j["num_hidden_layers"] = 1; },
           {"model.layers.1", "every tensor must belong"}},
          {"llama", [](OrderedJson& j) { j["num_hidden_layers"] = 3; }, {"model.layers.2", "none"}},
          {"gpt2",
           [](OrderedJson& j) { j["scale_attn_by_inverse_layer_idx"] = true; },
           {"scale_attn_by_inverse_layer_idx", "false"}},
      };
  for (const auto& [name, spoil, words] : cases) holds(error_with(name, spoil), words);
  EXPECT_EQ(error_with("llama", [](OrderedJson&) {}), "");
}

TEST_F(BadModels, AWindowIsAMask) {
  const std::string directory = copy("mistral");
  OrderedJson json = OrderedJson::parse(read_text(directory + "/config.json"));
  json["sliding_window"] = 8;
  write_file(directory + "/config.json", json.dump());
  std::vector<std::string> notes;
  const trainer::Imported imported = import_quietly(directory, scratch_.path("out"), &notes);
  const trainer::TrainerConfig recipe = recipe_of(imported.checkpoint);
  EXPECT_EQ(layers::get(recipe, "model.decoder.stack.layer.attention.mask.window"), "8");
  EXPECT_GT(recipe.sequence, 8);
}

// Fields of config.json, and which layers then have windows; export writes them back.
TEST_F(BadModels, WindowsInSomeLayers) {
  const auto windows = [&](const std::string& name, const std::function<void(OrderedJson&)>& edit) {
    const std::string directory = copy(name);
    OrderedJson json = OrderedJson::parse(read_text(directory + "/config.json"));
    edit(json);
    write_file(directory + "/config.json", json.dump());
    const trainer::ReadConfig read = trainer::read_config_json(nlohmann::json::parse(json.dump()), "config",
                                                               classes(), [](const std::string&) {});
    const auto masks = [](const layers::CausalLM::Config& model) {
      const auto* stack = model.decoder->stack.as<layers::Stack::Config>();
      std::string found;
      for (std::int64_t i = 0; i < stack->num_layers; ++i)
        found += layers::get(*stack->layer_at(i), "attention.mask").starts_with("SlidingWindow") ? 'w' : '-';
      return found;
    };
    const trainer::WrittenConfig written =
        trainer::write_config_json(read.model, 64, read.family->name, classes());
    const trainer::ReadConfig again = trainer::read_config_json(
        nlohmann::json::parse(written.json.dump()), "config", classes(), [](const std::string&) {});
    EXPECT_EQ(masks(again.model), masks(read.model));
    return masks(read.model);
  };
  const auto use = [](OrderedJson& j) {
    j["use_sliding_window"] = true;
    j["sliding_window"] = 8;
  };
  EXPECT_EQ(windows("qwen2", [](OrderedJson&) {}), "--");
  EXPECT_EQ(windows("qwen2", use), "--");  // max_window_layers is 28
  EXPECT_EQ(windows("qwen2", [&](OrderedJson& j) { use(j), j["max_window_layers"] = 1; }), "-w");
  EXPECT_EQ(windows("qwen2", [&](OrderedJson& j) { use(j), j["max_window_layers"] = 0; }), "ww");
  EXPECT_EQ(windows("qwen2",
                    [&](OrderedJson& j) {
                      use(j), j["layer_types"] = {"sliding_attention", "full_attention"};
                    }),
            "w-");
  EXPECT_EQ(windows("gemma2", [](OrderedJson&) {}), "w-w");
  // Of the Qwen families with experts, one has windows in every layer, the other in even layers below
  // max_window_layers.
  const auto three = [&](OrderedJson& j) { use(j), j["num_hidden_layers"] = 3, j["max_window_layers"] = 1; };
  EXPECT_EQ(windows("qwen3-moe", three), "www");
  EXPECT_EQ(windows("qwen3-moe", [](OrderedJson& j) { j["sliding_window"] = 8; }), "--");
  EXPECT_EQ(windows("qwen2-moe", three), "w--");
  EXPECT_EQ(windows("qwen2-moe", [&](OrderedJson& j) { three(j), j.erase("max_window_layers"); }), "w-w");
  EXPECT_EQ(windows("qwen2-moe",
                    [&](OrderedJson& j) {
                      use(j), j["layer_types"] = {"full_attention", "sliding_attention"};
                    }),
            "-w");
  EXPECT_EQ(windows("qwen2-moe", [](OrderedJson& j) { j["sliding_window"] = 0; }),
            "--");  // as transformers 5 saves it
  const auto typed = [&](OrderedJson& j) {
    use(j), j["layer_types"] = {"full_attention", "sliding_attention"};
  };
  for (const char* name : {"mixtral", "qwen3-moe"})
    EXPECT_EQ(windows(name, typed), "ww") << name;  // not read there
  EXPECT_EQ(windows("mistral", typed), "-w");       // transformers takes it for a Ministral
  EXPECT_EQ(windows("mistral", use), "ww");
  EXPECT_EQ(windows("gemma2", [](OrderedJson& j) { j["sliding_window"] = 64; }), "---");
  const auto types = [](const std::string& kinds) {
    return [kinds](OrderedJson& j) {
      j["num_hidden_layers"] = kinds.size();
      j["layer_types"] = OrderedJson::array();
      for (const char kind : kinds)
        j["layer_types"].push_back(kind == 'w' ? "sliding_attention" : "full_attention");
    };
  };
  for (const char* kinds : {"wwwww-", "-ww-w--", "w--w--w", "--w----"})
    EXPECT_EQ(windows("gemma2", types(kinds)), kinds);
}

// Which layers have experts; export writes it back, whichever kind of layer stands in the stack and which in
// overrides.
TEST_F(BadModels, LayersWithoutExperts) {
  const auto kinds = [](const layers::CausalLM::Config& model) {
    const auto* stack = model.decoder->stack.as<layers::Stack::Config>();
    std::string found;
    for (std::int64_t i = 0; i < stack->num_layers; ++i)
      found += layers::get(*stack->layer_at(i), "feed_forward").starts_with("MoE") ? 'e' : '-';
    return found;
  };
  const auto read = [&](const nlohmann::json& json) {
    return trainer::read_config_json(json, "config", classes(), [](const std::string&) {}).model;
  };
  const auto again = [&](const layers::CausalLM::Config& model) {
    return read(nlohmann::json::parse(trainer::write_config_json(model, 64, "", classes()).json.dump()));
  };
  const auto experts = [&](const std::string& name, const OrderedJson& fields) {
    OrderedJson json = OrderedJson::parse(read_text(model_directory(name) + "/config.json"));
    json["num_hidden_layers"] = 6;
    json.update(fields);
    const layers::CausalLM::Config model = read(nlohmann::json::parse(json.dump()));
    EXPECT_EQ(layers::print(again(model)), layers::print(model));
    return kinds(model);
  };
  EXPECT_EQ(experts("qwen2-moe", OrderedJson::object()), "eeeeee");
  EXPECT_EQ(experts("qwen2-moe", {{"decoder_sparse_step", 1}, {"mlp_only_layers", nullptr}}), "eeeeee");
  EXPECT_EQ(experts("qwen2-moe", {{"decoder_sparse_step", 2}}), "-e-e-e");
  EXPECT_EQ(experts("qwen3-moe", {{"decoder_sparse_step", 4}}), "---e--");
  EXPECT_EQ(experts("qwen3-moe", {{"mlp_only_layers", {0, 3, 4}}}), "-ee--e");
  EXPECT_EQ(experts("qwen3-moe", {{"decoder_sparse_step", 2}, {"mlp_only_layers", {1, 5}}}), "---e--");
  EXPECT_EQ(experts("qwen3-moe", {{"mlp_only_layers", {0, 1}},
                                  {"use_sliding_window", true},
                                  {"sliding_window", 8},
                                  {"max_window_layers", 3}}),
            "--eeee");
  layers::CausalLM::Config alternating =
      read(nlohmann::json::parse(read_text(model_directory("qwen3-moe-dense") + "/config.json")));
  auto* stack = alternating.decoder->stack.as<layers::HeterogeneousStack::Config>();
  ASSERT_TRUE(stack);
  const layers::Child<layers::Layer::Config> dense = stack->layer_at(1);
  layers::LayerOverride change;
  change.where = std::string("feed_forward");
  change.with = layers::Child<layers::Config>(
      *trainer::llama_layer(alternating).feed_forward.as<layers::MoE::Config>());
  change.every = 2;
  stack->layer = dense;
  stack->overrides = {layers::Child<layers::LayerOverride>(change)};
  EXPECT_EQ(kinds(alternating), "e-e");
  EXPECT_EQ(kinds(again(alternating)), "e-e");
}

// As in transformers, where a Llama has no windows.
TEST_F(BadModels, AWindowThatIsNotReadIsSaid) {
  OrderedJson json = OrderedJson::parse(read_text(model_directory("llama") + "/config.json"));
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  json["sliding_window"] = nullptr;
  trainer::read_config_json(nlohmann::json::parse(json.dump()), "config", classes(), note);
  EXPECT_TRUE(notes.empty());
  json["sliding_window"] = 8;
  trainer::read_config_json(nlohmann::json::parse(json.dump()), "config", classes(), note);
  ASSERT_EQ(notes.size(), 1u);
  holds(notes[0], {"sliding_window", "llama", "8"});
}

TEST_F(BadModels, FieldsThatChangeNothingAreTaken) {
  const auto add = [](const char* fields) {
    return [fields](OrderedJson& j) { j.update(OrderedJson::parse(fields)); };
  };
  EXPECT_EQ(error_with(
                "llama",
                add(R"({"is_llama_config": true, "rope_interleaved": false, "sep_token_id": null, "foo": null,
      "id2label": {"0": "a"}, "temperature": 0.6, "pruned_heads": {}, "unsloth_version": "1", "layer_types": null})")),
            "");
  EXPECT_EQ(
      error_with("qwen3-moe", add(R"({"use_qk_norm": true, "qkv_bias": false, "max_window_layers": 48})")),
      "");
  EXPECT_EQ(error_with("gpt2", add(R"({"n_ctx": 16, "summary_type": "cls_index", "hidden_size": 16})")), "");
}

TEST_F(BadModels, WhatWillNotTrainIsSaid) {
  const std::string directory = copy("gpt2"), path = directory + "/model.safetensors";
  fs::copy_file(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/gpt2.json",
                directory + "/tokenizer.json", fs::copy_options::overwrite_existing);
  std::string bytes = read_text(path);
  bytes.replace(bytes.size() - 4, 4, std::string(4, '\xff'));  // NaN, in all three dtypes
  write_file(path, bytes);
  std::vector<std::string> notes;
  import_quietly(directory, scratch_.path("out"), &notes);
  std::string all;
  for (const std::string& note : notes) all += note + "\n";
  holds(all, {"tensor", "not finite", "tokenizer.json", "ids", "vocabulary of "});
}

TEST_F(BadModels, Files) {
  holds(error_of(scratch_.path("none")), {"config.json", "readable"});
  std::string directory = copy("gpt2");
  write_file(directory + "/config.json", "{\"model_type\": ");
  holds(error_of(directory), {"config.json", "JSON"});
  directory = copy("gpt2");
  fs::remove(directory + "/model.safetensors");
  holds(error_of(directory), {"model.safetensors", "none of them"});
  write_file(directory + "/pytorch_model.bin", "x");
  holds(error_of(directory), {"pytorch_model.bin", "safetensors"});
  directory = copy("gpt2");
  fs::resize_file(directory + "/model.safetensors", fs::file_size(directory + "/model.safetensors") - 100);
  holds(error_of(directory), {"model.safetensors", "inside"});
  directory = copy("gpt2");
  write_file(directory + "/tokenizer.json", "{}");
  holds(error_of(directory), {"tokenizer.json", "model"});
}

TEST_F(BadModels, Tensors) {
  const std::string name = "transformer.ln_f.bias";
  holds(error_with_header("gpt2", [&](OrderedJson& j) { j[name]["dtype"] = "F33"; }),
        {name, "element type", "F33"});
  holds(error_with_header("gpt2", [&](OrderedJson& j) { j[name]["dtype"] = "I32"; }),
        {name, "F32, F16 or BF16", "I32"});
  holds(error_with_header("gpt2",
                          [&](OrderedJson& j) {
                            j[name]["shape"] = {4, 4};
                          }),
        {name, "(16)", "(4, 4)"});
  holds(error_with_header("gpt2",
                          [&](OrderedJson& j) {
                            j["transformer.ln_f.bios"] = j[name];
                            j.erase(name);
                          }),
        {name, "none"});
}

TEST_F(BadModels, ShardsWithoutAnIndex) {
  const std::string directory = copy("llama"), second = directory + "/model-00002-of-00002.safetensors";
  fs::remove(directory + "/model.safetensors.index.json");
  EXPECT_EQ(error_of(directory), "");
  EXPECT_EQ(read_text(import_quietly(directory, scratch_.path("a")).checkpoint + "/model.safetensors"),
            read_text(import_quietly(model_directory("llama"), scratch_.path("b")).checkpoint +
                      "/model.safetensors"));
  fs::copy_file(second, directory + "/model-00003-of-00003.safetensors");
  holds(error_of(directory), {"shards must be of one model", "model-00003-of-00003"});
  fs::remove(directory + "/model-00003-of-00003.safetensors");
  fs::copy_file(second, directory + "/model-00003-of-00002.safetensors");
  holds(error_of(directory), {"numbered from 1 to 00002"});
  fs::rename(directory + "/model-00003-of-00002.safetensors",
             directory + "/model-00001-of-00002.safetensors");
  holds(error_of(directory), {"model-00002-of-00002", "in one shard only", "model-00001"});
  fs::remove(second);
  holds(error_of(directory), {"every shard", "no 'model-00002-of-00002.safetensors'"});
}

// With one expert per token its weight is 1, and the router does not change.
TEST_F(BadModels, OneExpertPerToken) {
  for (const char* name : {"mixtral", "qwen2-moe", "qwen3-moe"})
    EXPECT_EQ(error_with(name, [](OrderedJson& j) { j["num_experts_per_tok"] = 1; }), "") << name;
}

TEST_F(BadModels, Index) {
  const auto error = [&](const std::function<void(OrderedJson&)>& spoil) {
    const std::string directory = copy("llama"), path = directory + "/model.safetensors.index.json";
    OrderedJson json = OrderedJson::parse(read_text(path));
    spoil(json);
    write_file(path, json.dump());
    return error_of(directory);
  };
  EXPECT_EQ(error([](OrderedJson&) {}), "");
  holds(error([](OrderedJson& j) {
          j["weight_map"]["model.norm.weight"] = "model-00009-of-00002.safetensors";
        }),
        {"index.json", "model-00009"});
  holds(error([](OrderedJson& j) { j["weight_map"]["model.norm.weight"] = "../model.safetensors"; }),
        {"weight_map", "same directory"});
  holds(error([](OrderedJson& j) { j["weight_map"]["extra"] = j["weight_map"]["model.norm.weight"]; }),
        {"extra", "does not"});
  holds(error([](OrderedJson& j) { j["weight_map"].erase("model.norm.weight"); }),
        {"model.norm.weight", "not in the index"});
  holds(error([](OrderedJson& j) { j.erase("weight_map"); }), {"weight_map"});
  const std::string directory = copy("llama");
  write_file(directory + "/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}");
  holds(error_of(directory), {"index", "once", "'a'"});
}

// Any change of bytes is an import or an error.
TEST_F(BadModels, SpoiledBytes) {
  const char* rounds = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  kernels::Rng rng(3);
  for (int round = rounds ? std::atoi(rounds) : 40; round > 0; --round) {
    const std::string directory = copy(rng.flip() ? "gpt2" : "qwen3-moe-dense");
    const std::string path = directory + (rng.flip() ? "/config.json" : "/model.safetensors");
    std::string text = read_text(path);
    const auto last = static_cast<std::int64_t>(std::min<std::size_t>(text.size(), 3000)) - 1;
    for (std::int64_t i = rng.integer(1, 4); i > 0; --i)
      text[static_cast<std::size_t>(rng.integer(0, last))] = static_cast<char>(rng.integer(0, 255));
    write_file(path, text);
    error_of(directory);
  }
}

TEST(CommandLine, ImportTrainGenerateExport) {
  const Scratch scratch;
  fs::copy(model_directory("llama"), scratch.path("hf"));
  const std::string tokenizer = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/gpt2.json";
  fs::copy_file(tokenizer, scratch.path("hf") + "/tokenizer.json");
  // 61 ids are fewer than the tokenizer's: its model cannot be trained on it, and that is said.
  Outcome outcome = meshloom("import " + scratch.path("hf") + " --out " + scratch.path("run"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("vocabulary of 61"), std::string::npos) << outcome.err;
  const std::string text = scratch.file("text", sample_text(4000));
  const std::string train = "train --init " + scratch.path("run") +
                            " --device cpu --sample 0 --steps 2 --set sequence=16 --data " + text +
                            " --out " + scratch.path("tuned");
  outcome = meshloom(train);
  EXPECT_EQ(outcome.code, 1);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_NE(outcome.errors()[0].find("vocabulary of 61"), std::string::npos) << outcome.err;
  outcome = meshloom("export --checkpoint " + scratch.path("run") + " --out " + scratch.path("out") +
                     " --dtype f64");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("--dtype"), std::string::npos) << outcome.err;
  outcome = meshloom("export --checkpoint " + scratch.path("run") + " --out " + scratch.path("out") +
                     " --dtype bf16");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_text(scratch.path("out") + "/tokenizer.json"), read_text(tokenizer));
  const auto written = nlohmann::json::parse(read_text(scratch.path("out") + "/config.json"));
  EXPECT_EQ(written.at("eos_token_id"), 2);  // as config.json had it
  EXPECT_TRUE(written.contains("bos_token_id"));
  outcome = meshloom("export --checkpoint " + scratch.path("run") + " --out " + scratch.path("out"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("empty directory"), std::string::npos) << outcome.err;
}

TEST(CommandLine, ACheckpointKeepsItsTokenizer) {
  const Scratch scratch;
  const std::string tokenizer = read_text(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/gpt2.json"),
                    text = scratch.file("text", sample_text(4000)),
                    file = scratch.file("given.json", tokenizer), run = scratch.path("run"),
                    moved = scratch.path("moved");
  const auto train = [&](const std::string& from, const std::string& rest) {
    return meshloom(
        "train tiny --device cpu --sample 0 --set sequence=16 --set model.vocab_size=421 --data " + text +
        " --set 'input.tokenizer=TokenizerJson{file=\"" + from + "\"}' " + rest);
  };
  Outcome outcome = train(file, "--steps 1 --out " + run);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  fs::remove(file);
  fs::rename(run, moved);
  const std::string step = moved + "/step-00000001";
  outcome = meshloom("generate --checkpoint " + moved + " --prompt 'In the' --tokens 2 --device cpu");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  outcome = meshloom("plan --device cpu --config " + step + "/config.txt");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // Wherever the file lies now.
  outcome = train(scratch.file("again.json", tokenizer), "--resume --steps 2 --out " + moved);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_text(moved + "/step-00000002/tokenizer.json"), tokenizer);
  write_file(step + "/tokenizer.json", tokenizer + " ");
  outcome = meshloom("generate --checkpoint " + step + " --prompt 'In the' --tokens 2 --device cpu");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("tokenizer.json"), std::string::npos) << outcome.err;
}

TEST(CommandLine, ARunStartsFromParameters) {
  const Scratch scratch;
  const std::string text = scratch.file("text", sample_text(4000)),
                    tail = " --device cpu --sample 0 --data " + text;
  ASSERT_EQ(meshloom("train tiny --steps 3 --out " + scratch.path("a") + tail).code, 0);
  ASSERT_EQ(meshloom("export --checkpoint " + scratch.path("a") + " --out " + scratch.path("hf")).code, 0);
  ASSERT_EQ(meshloom("import " + scratch.path("hf") + " --out " + scratch.path("b")).code, 0);
  EXPECT_EQ(read_text(scratch.path("a") + "/step-00000003/model.safetensors"),
            read_text(scratch.path("b") + "/step-00000000/model.safetensors"));
  EXPECT_EQ(
      meshloom("generate --checkpoint " + scratch.path("b") + " --prompt the --tokens 3 --device cpu").code,
      0);
  const Outcome outcome = meshloom("train --init " + scratch.path("b") +
                                   " --steps 2 --set sequence=32 --out " + scratch.path("c") + tail);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome resumed = meshloom("train --config " + scratch.path("b") +
                                   "/step-00000000/config.txt --resume --out " + scratch.path("b") + tail);
  EXPECT_EQ(resumed.code, 1);
  ASSERT_EQ(resumed.errors().size(), 1u) << resumed.err;
}

}  // namespace
}  // namespace meshloom::tests
