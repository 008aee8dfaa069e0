// GGUF files: blocks as the gguf package reads and writes them (make_gguf.py), models there and back, tokenizers, and what can be
// wrong with a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "hal/error.h"
#include "kernels/block_quantized/formats.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/interop/gguf_model.h"
#include "trainer/interop/gguf_tokenizer.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/gguf.h"
#include "trainer/io/gguf_blocks.h"
#include "trainer/io/safetensors.h"

namespace meshloom::tests {
namespace {

using trainer::GgufFile;
using trainer::GgufTensor;
using trainer::GgufValue;
namespace fs = std::filesystem;

const std::string kHere = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/";
const auto kQuiet = [](const std::string&) {};

template <typename T>
std::vector<T> stored(const trainer::SafetensorsFile& file, const std::string& name) {
  std::vector<T> values(static_cast<std::size_t>(file.find(name)->bytes()) / sizeof(T));
  file.read(*file.find(name), std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(GgufBlocks, AreReadAsTheGgufPackageDoes) {
  const trainer::SafetensorsFile file(kHere + "gguf_blocks.safetensors");
  int kinds = 0;
  for (const char* kind :
       {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
    const auto blocks = stored<std::byte>(file, std::string(kind) + "/blocks");
    const auto wanted = stored<float>(file, std::string(kind) + "/values");
    std::vector<float> values(wanted.size());
    trainer::dequantize(*trainer::gguf_block(kind), blocks, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(wanted[i]))
          << kind << " " << i << ": " << values[i] << " and " << wanted[i];
    ++kinds;
  }
  EXPECT_EQ(kinds, 11);
}

TEST(GgufBlocks, AreWrittenAsTheGgufPackageDoes) {
  const trainer::SafetensorsFile file(kHere + "gguf_blocks.safetensors");
  const auto values = stored<float>(file, "quantized/values");
  const auto wanted = stored<std::byte>(file, "quantized/Q8_0");
  std::vector<std::byte> blocks(wanted.size());
  EXPECT_TRUE(trainer::quantize(*trainer::gguf_block("Q8_0"), values, blocks));
  EXPECT_EQ(blocks, wanted);
  for (const auto& format : kernels::block_quantized::formats()) {
    if (!format.is_written) continue;
    std::string name(format.name);
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    const auto expected = stored<std::uint8_t>(file, "quantized/" + name);
    std::vector<std::uint8_t> made(expected.size());
    EXPECT_TRUE(kernels::block_quantized::quantize(format, values.data(),
                                                   static_cast<std::int64_t>(values.size()), made.data()));
    EXPECT_EQ(made, expected) << name;
  }
}

TEST(GgufBlocks, RefuseValuesOutOfRange) {
  std::vector<float> values(32, 1.0f);
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE(trainer::quantize(*trainer::gguf_block("F16"), values, std::span(bytes).first(64)));
  values[3] = 70000;
  EXPECT_FALSE(trainer::quantize(*trainer::gguf_block("F16"), values, std::span(bytes).first(64)));
  EXPECT_TRUE(trainer::quantize(*trainer::gguf_block("Q8_0"), values, std::span(bytes).first(34)));
  for (const float bad : {INFINITY, NAN, 1e30f}) {
    values[3] = bad;
    EXPECT_FALSE(trainer::quantize(*trainer::gguf_block("Q8_0"), values, std::span(bytes).first(34))) << bad;
  }
}

class Gguf : public testing::Test {
 protected:
  // A model of the tests as GGUF, after edits of its config.json.
  std::string exported(const std::string& name, const nlohmann::json& edits = nlohmann::json::object(),
                       const std::string& dtype = "f32") {
    const std::string from = scratch_.path("model"), file = scratch_.path(name + ".gguf");
    for (const char* each : {"model", "run"}) fs::remove_all(scratch_.path(each));
    fs::remove(file);
    fs::copy(model_directory(name), from, fs::copy_options::recursive);
    auto config = nlohmann::json::parse(read_text(from + "/config.json"));
    config.update(edits);
    std::ofstream(from + "/config.json") << config.dump();
    run_ = import_quietly(from, scratch_.path("run"));
    const trainer::ExportOptions options{.dtype = dtype, .family = run_.family, .format = "gguf"};
    trainer::export_model(scratch_.path("run"), file, options, classes(), kQuiet);
    return file;
  }
  std::string error_of(const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "none";
  }
  std::string import_error(const std::string& file) {
    fs::remove_all(scratch_.path("out"));
    const std::string error = error_of([&] { import_quietly(file, scratch_.path("out")); });
    EXPECT_EQ(fs::exists(scratch_.path("out") + "/step-00000000"), error == "none");
    return error;
  }
  // The file with its metadata or its tensors edited, written anew.
  using Metadata = std::vector<std::pair<std::string, GgufValue>>;
  std::string edited(const std::string& file,
                     const std::function<void(Metadata&, std::vector<GgufTensor>&)>& edit) {
    const GgufFile read(file);
    Metadata metadata(read.metadata().begin(), read.metadata().end());
    std::vector<GgufTensor> tensors = read.tensors();
    std::string data;
    edit(metadata, tensors);
    const std::vector<GgufTensor> before = tensors;
    const std::string header = trainer::gguf_header(metadata, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      data.resize(static_cast<std::size_t>(tensors[i].end), '\0');
      read.read(before[i], 0,
                std::as_writable_bytes(std::span(data).subspan(static_cast<std::size_t>(tensors[i].begin))));
    }
    const std::string out = scratch_.path("edited.gguf");
    std::ofstream(out, std::ios::binary) << header << data;
    return out;
  }
  std::string error_with(const std::string& file, const std::string& key, const GgufValue& value) {
    return import_error(edited(file, [&](Metadata& metadata, auto&) {
      std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
      metadata.emplace_back(key, value);
    }));
  }

  Scratch scratch_;
  trainer::Imported run_;
};

TEST_F(Gguf, ModelsComeBackAsTheyWere) {
  const std::map<std::string, nlohmann::json> models{{"llama", {}},
                                                     {"llama3", {}},
                                                     {"llama-tied", {}},
                                                     {"linear", {}},
                                                     {"yarn", {}},
                                                     {"mixtral", {}},
                                                     {"qwen2", {}},
                                                     {"qwen3", {}},
                                                     {"qwen3-moe", {{"norm_topk_prob", true}}},
                                                     {"smollm3", {}},
                                                     {"gemma2", {{"query_pre_attn_scalar", 6}}},
                                                     {"gemma3", {}},
                                                     {"gpt2", {}},
                                                     {"phi3", {{"sliding_window", nullptr}}},
                                                     {"phi3-mini", {}},
                                                     {"phi3-long-5", {}},
                                                     {"granite", {}},
                                                     {"olmo2", {}}};
  for (const auto& [name, edits] : models) {
    const std::string file = exported(name, edits.is_null() ? nlohmann::json::object() : edits);
    fs::remove_all(scratch_.path("again"));
    const trainer::Imported again = import_quietly(file, scratch_.path("again"));
    EXPECT_EQ(again.family, run_.family) << name;
    EXPECT_EQ(again.parameters, run_.parameters) << name;
    EXPECT_EQ(read_text(again.checkpoint + "/config.txt"), read_text(run_.checkpoint + "/config.txt"))
        << name;
    // Gemma's factors are stored as 1 + weight, which rounds.
    const bool same = read_text(again.checkpoint + "/model.safetensors") ==
                      read_text(run_.checkpoint + "/model.safetensors");
    EXPECT_TRUE(same || name.starts_with("gemma")) << name;
  }
}

TEST_F(Gguf, RowsOfHeadsArePairedInLlamaOnly) {
  const std::string file = exported("llama");
  const GgufFile read(file);
  const GgufTensor* q = read.find("blk.0.attn_q.weight");
  ASSERT_TRUE(q);
  std::vector<float> rows(static_cast<std::size_t>(q->elements())), wanted;
  read.read(*q, 0, std::as_writable_bytes(std::span(rows)));
  const trainer::GgufModel model(file);
  model.read("model.layers.0.self_attn.q_proj.weight", wanted);
  // A head has four rows: llama.cpp has them in the order 0 2 1 3.
  const std::vector<std::size_t> order{0, 2, 1, 3};
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(rows[row * 16 + i], wanted[order[row] * 16 + i]);
  const std::string qwen = exported("qwen2");
  const GgufFile other(qwen);
  const GgufTensor* plain = other.find("blk.0.attn_q.weight");
  ASSERT_TRUE(plain);
  rows.resize(static_cast<std::size_t>(plain->elements()));
  other.read(*plain, 0, std::as_writable_bytes(std::span(rows)));
  trainer::GgufModel(qwen).read("model.layers.0.self_attn.q_proj.weight", wanted);
  EXPECT_EQ(rows, wanted);
}

TEST_F(Gguf, DtypesAreThoseOfTheExport) {
  for (const auto& [dtype, wanted] :
       {std::pair{"f32", "F32"}, std::pair{"f16", "F16"}, std::pair{"bf16", "BF16"},
        // rows of 16 are no whole block
        std::pair{"q8_0", "F16"}}) {
    const GgufFile file(exported("llama", nlohmann::json::object(), dtype));
    EXPECT_EQ(file.find("blk.0.ffn_down.weight")->block->name, wanted) << dtype;
    EXPECT_EQ(file.find("blk.0.attn_norm.weight")->block->name, "F32") << dtype;
  }
  EXPECT_NE(error_of([&] {
              exported("llama", nlohmann::json::object(), "q4_0");
            }).find("--dtype: must be f32, bf16, f16 or q8_0"),
            std::string::npos);
}

TEST_F(Gguf, WhatLlamaCppComputesInAnotherWayIsNotWritten) {
  const auto refused = [&](const std::string& name, const nlohmann::json& edits, const std::string& said) {
    const std::string error = error_of([&] { exported(name, edits); });
    EXPECT_NE(error.find(said), std::string::npos) << name << ": " << error;
  };
  refused("qwen3-moe", nlohmann::json::object(), "norm_topk_prob");
  refused("gemma2", nlohmann::json::object(), "query_pre_attn_scalar");
  refused("mistral-5", nlohmann::json::object(), "sliding_window");
  refused("qwen2-moe", nlohmann::json::object(), "must be of the families");
  refused("llama", {{"hidden_act", "gelu"}}, "hidden_act: must be silu");
  refused("gemma3-5", nlohmann::json::object(), "layer_types: gemma3 has windows");
  refused("gemma3", {{"query_pre_attn_scalar", 24}}, "query_pre_attn_scalar");
  refused("gemma3", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}},
          "rope_scaling: must be linear");
  refused("smollm3", {{"no_rope_layers", {1, 0, 1, 1, 0}}}, "no_rope_layers: llama.cpp has no positions");
  refused("smollm3-5", {{"sliding_window", nullptr}, {"layer_types", nullptr}}, "no_rope_layers");
  refused("gpt2", {{"activation_function", "gelu"}}, "activation_function");
  refused("phi3", nlohmann::json::object(), "sliding_window");
  refused("granite-5", nlohmann::json::object(), "head_dim: must be hidden_size / num_attention_heads");
  refused("olmo2-5", nlohmann::json::object(), "attention_bias");
}

TEST_F(Gguf, KeysThatChangeTheModelAreRefusedByName) {
  const std::string file = exported("llama");
  const auto refused = [&](const std::string& key, const GgufValue& value, const std::string& said) {
    const std::string error = error_with(file, key, value);
    EXPECT_NE(error.find(said), std::string::npos) << key << ": " << error;
    EXPECT_NE(error.find("edited.gguf'"), std::string::npos) << error;
  };
  EXPECT_EQ(import_error(file), "none");
  EXPECT_EQ(error_with(file, "general.name", GgufValue::text("a name")), "none");
  EXPECT_EQ(error_with(file, "llama.attention.causal", GgufValue::flag(true)), "none");
  refused("llama.attention.causal", GgufValue::flag(false), "key llama.attention.causal: must be 1");
  refused("llama.logit_scale", GgufValue::f32(2), "llama.logit_scale': must be a key that is known");
  refused("llama.attention.sliding_window", GgufValue::u32(8), "sliding_window: must be absent");
  refused("llama.block_count", GgufValue::text("2"), "must be an integer from 0");
  refused("llama.block_count", GgufValue::u32(3), "has a tensor 'model.layers.2");
  refused("llama.block_count", GgufValue::u32(1), "tensor 'blk.1.");
  refused("llama.attention.head_count", GgufValue::u32(0), "must be at least 1");
  refused("llama.attention.head_count_kv", GgufValue::u32(0), "num_key_value_heads");
  refused("llama.attention.value_length", GgufValue::u32(8), "must be that of keys, 4");
  refused("llama.rope.dimension_count", GgufValue::u32(2), "must be the size of a head");
  refused("llama.rope.scaling.type", GgufValue::text("longrope"), "must be none, linear or yarn");
  refused("llama.vocab_size", GgufValue::u32(60), "must be the rows of token_embd.weight, 61");
  refused("llama.expert_count", GgufValue::u32(4), "expert_used_count: must be present");
  refused("general.architecture", GgufValue::text("mamba"), "general.architecture: must be one of llama");
  refused("general.type", GgufValue::text("adapter"), "general.type: must be");
  refused("split.count", GgufValue::u32(3), "split.count: must be 1");
  refused("tokenizer.ggml.model", GgufValue::text("t5"), "tokenizer.ggml.model: must be gpt2");
  refused("general.alignment", GgufValue::u32(48), "general.alignment: must be a power of two");
  refused("general.alignment", GgufValue::u32(1 << 17), "general.alignment: must be a power of two");
}

// Keys and tensors of phi3, granite and olmo2 that say what the architecture computes.
TEST_F(Gguf, KeysOfFamiliesAreRead) {
  const auto config_with = [&](const std::string& file, const std::string& key, const GgufValue& value) {
    EXPECT_EQ(error_with(file, key, value), "none") << key;
    return read_text(scratch_.path("out") + "/step-00000000/config.txt");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  };
  const std::string phi3 = exported("phi3-mini");
  has(config_with(phi3, "phi3.attention.sliding_window", GgufValue::u32(8)), "window = 8");
  has(config_with(phi3, "phi3.rope.scaling.attn_factor", GgufValue::f32(1.5)), "attention_factor = 1.5");
  EXPECT_NE(error_with(phi3, "phi3.rope.dimension_count", GgufValue::u32(8)).find("for each of 4 pairs"),
            std::string::npos);
  const std::string plain = exported("phi3", {{"sliding_window", nullptr}});
  EXPECT_NE(error_with(plain, "phi3.rope.scaling.attn_factor", GgufValue::f32(1.5)).find("must be 1"),
            std::string::npos);
  const std::string granite = exported("granite");
  has(config_with(granite, "granite.residual_scale", GgufValue::f32(0)), "residual_scale = 1");
  has(config_with(granite, "granite.attention.scale", GgufValue::f32(0)), "scale = 0.5");
  EXPECT_NE(error_with(granite, "granite.rope.scaling.finetuned", GgufValue::flag(false)).find("must be 1"),
            std::string::npos);
}

// Writes a header by hand.
class Bytes {
 public:
  template <typename T>
  Bytes& add(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& add_text(const std::string& value) {
    add<std::uint64_t>(value.size());
    text += value;
    return *this;
  }
  Bytes& start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    text = "GGUF";
    return add(version).add(tensors).add(keys);
  }
  Bytes& tensor(const std::string& name, std::vector<std::uint64_t> sizes, std::uint32_t type,
                std::uint64_t offset) {
    add_text(name).add(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) add(size);
    return add(type).add(offset);
  }
  Bytes& data(std::size_t bytes) {
    text.resize((text.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  std::string text;
};

TEST_F(Gguf, HeadersAreChecked) {
  const auto error = [&](const Bytes& bytes) {
    const std::string path = scratch_.path("made.gguf");
    std::ofstream(path, std::ios::binary) << bytes.text;
    return error_of([&] { GgufFile file(path); });
  };
  const auto refused = [&](const Bytes& bytes, const std::string& said) {
    const std::string what = error(bytes);
    EXPECT_NE(what.find(said), std::string::npos) << what << ", not " << said;
  };
  EXPECT_EQ(error(Bytes().start(1, 0).tensor("a", {8}, 0, 0).data(32)), "none");
  EXPECT_EQ(error(Bytes().start(1, 0, 2).tensor("a", {8}, 0, 0).data(32)), "none");
  refused(Bytes().add<std::uint32_t>(1), "begins with the letters GGUF");
  refused(Bytes(), "must lie within the file's 0 bytes");
  refused(Bytes().start(0, 0, 1), "the version must be 2 or 3; found 1");
  refused(Bytes().start(0, 0, 4), "the version must be 2 or 3; found 4");
  refused(Bytes().start(0, 0, 0x03000000), "big-endian");
  refused(Bytes().start(65537, 0), "at most 65536 tensors");
  refused(Bytes().start(0, 65537), "at most 65536 keys");
  refused(Bytes().start(0, 1).add<std::uint64_t>(1ull << 40), "a text must have at most");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(13), "must be 0 to 12");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(7).add<std::uint8_t>(2),
          "a bool must be 0 or 1");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(8).add<std::uint64_t>(~0ull),
          "at most 1048576 bytes");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(9).add<std::uint32_t>(9).add<std::uint64_t>(1),
          "found arrays");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(9).add<std::uint32_t>(10).add(~0ull),
          "an array must have at most");
  refused(Bytes().start(0, 1).add_text("k").add<std::uint32_t>(9).add<std::uint32_t>(8).add<std::uint64_t>(
              1 << 20),
          "an array must have at most");
  refused(Bytes()
              .start(0, 2)
              .add_text("k")
              .add<std::uint32_t>(7)
              .add('\1')
              .add_text("k")
              .add<std::uint32_t>(7)
              .add('\1'),
          "must occur once");
  refused(Bytes().start(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(64), "must occur once");
  refused(Bytes().start(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64), "must not overlap");
  refused(Bytes().start(1, 0).tensor("a", {8}, 0, 8).data(64), "multiple of the alignment");
  refused(Bytes().start(1, 0).tensor("a", {8}, 0, 64).data(64),
          "must lie inside the file's 64 bytes of data");
  refused(Bytes().start(1, 0).tensor("a", {}, 0, 0).data(64), "1 to 4 dimensions");
  refused(Bytes().start(1, 0).tensor("a", {1, 1, 1, 1, 1}, 0, 0).data(64), "1 to 4 dimensions");
  refused(Bytes().start(1, 0).tensor("a", {0}, 0, 0).data(64), "at least 1");
  refused(Bytes().start(1, 0).tensor("a", {1ull << 40, 1ull << 40}, 0, 0).data(64), "63 bits");
  refused(Bytes().start(1, 0).tensor("a", {1ull << 62}, 0, 0).data(64), "63 bits");
  refused(Bytes().start(1, 0).tensor("a", {8}, 0, ~0ull - 31).data(64), "63 bits");
  refused(Bytes().start(1, 0).tensor("a", {8}, 10, 0).data(64), "found Q2_K");
  refused(Bytes().start(1, 0).tensor("a", {8}, 999, 0).data(64), "found type 999");
  refused(Bytes().start(1, 0).tensor("a", {33}, 8, 0).data(64), "rows of Q8_0 must be a multiple of 32");
}

// Thousands of changed files: an Error or a checkpoint, nothing else.
TEST_F(Gguf, DamagedFilesAreRefusedOrImported) {
  const std::string original = read_text(exported("llama")), path = scratch_.path("damaged.gguf");
  // Most of the file is its header.
  std::mt19937_64 random(17);
  int refused = 0, read = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    std::string bytes = original;
    if (i % 8 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (std::uint64_t change = 0; change <= i % 3; ++change)
        bytes[random() % std::min<std::size_t>(bytes.size(), 4000)] = static_cast<char>(random());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    try {
      const trainer::GgufModel model(path);
      std::vector<float> values;
      for (const std::string& name : model.names()) model.read(name, values);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 10);
}

// The tokenizer in metadata, as a file has it.
std::string file_with(const std::string& path, std::vector<std::pair<std::string, GgufValue>> metadata) {
  std::vector<GgufTensor> tensors;
  std::ofstream(path, std::ios::binary) << trainer::gguf_header(metadata, tensors);
  return path;
}

TEST_F(Gguf, TokenizersComeBackAsTheyWere) {
  for (const char* name : {"gpt2", "llama3", "qwen", "smollm"}) {
    const std::string from = scratch_.path(std::string(name) + "-from"),
                      to = scratch_.path(std::string(name) + "-to");
    fs::create_directories(from);
    fs::create_directories(to);
    fs::copy(kHere + "tokenizers/" + name + ".json", from + "/tokenizer.json");
    std::ofstream(from + "/tokenizer_config.json") << R"({"eos_token": "<|end|>"})";
    std::ofstream(from + "/chat_template.jinja") << "{{ messages }}";
    trainer::TokenizerJsonConfig config;
    config.path = from + "/tokenizer.json";
    const nlohmann::ordered_json model{{"eos_token_id", {2, 1}}};
    const GgufFile file(
        file_with(scratch_.path("tokens.gguf"), trainer::gguf_tokenizer(config, from, model, 500, kQuiet)));
    nlohmann::json again;
    ASSERT_TRUE(trainer::write_tokenizer_of_gguf(file, to, again, kQuiet));
    EXPECT_EQ(again["eos_token_id"], nlohmann::json({1, 2})) << name;
    EXPECT_EQ(read_text(to + "/chat_template.jinja"), "{{ messages }}");
    const auto before = trainer::tokenizer_json(from + "/tokenizer.json", true),
               after = trainer::tokenizer_json(to + "/tokenizer.json", true);
    EXPECT_EQ(after->begin_of_text(), before->begin_of_text()) << name;
    for (const std::string text :
         {"Hello world, it's 1234567 o'clock\n\n  x", "Déjà vu 你好 <|end|> a<|pad|>b", " \t 9"}) {
      EXPECT_EQ(after->encode(text), before->encode(text)) << name << ": " << text;
      EXPECT_EQ(after->decode(before->encode(text)), before->decode(before->encode(text))) << name;
    }
  }
}

TEST_F(Gguf, DamagedTokenizersAreRefusedOrRead) {
  const std::string from = scratch_.path("from"), to = scratch_.path("to"),
                    path = scratch_.path("damaged.gguf");
  fs::create_directories(from);
  fs::copy(kHere + "tokenizers/llama3.json", from + "/tokenizer.json");
  trainer::TokenizerJsonConfig config;
  config.path = from + "/tokenizer.json";
  const std::string original =
      read_text(file_with(scratch_.path("tokens.gguf"),
                          trainer::gguf_tokenizer(config, from, {{"eos_token_id", 1}}, 500, kQuiet)));
  std::mt19937_64 random(23);
  int refused = 0, read = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = original;
    for (int change = 0; change <= i % 2; ++change) {
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(byte ^ 1 << random() % 3);
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    fs::remove_all(to);
    fs::create_directories(to);
    try {
      nlohmann::json json;
      if (trainer::write_tokenizer_of_gguf(GgufFile(path), to, json, kQuiet))
        trainer::tokenizer_json(to + "/tokenizer.json", true)->encode("a text 123");
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(read, 10);
}

TEST_F(Gguf, BytesBecomeABpeWithoutMerges) {
  trainer::BytesConfig bytes;
  const GgufFile file(
      file_with(scratch_.path("bytes.gguf"),
                trainer::gguf_tokenizer(bytes, "", nlohmann::ordered_json::object(), 300, kQuiet)));
  nlohmann::json config;
  ASSERT_TRUE(trainer::write_tokenizer_of_gguf(file, scratch_.path("."), config, kQuiet));
  const auto tokenizer = trainer::tokenizer_json(scratch_.path("tokenizer.json"), true);
  EXPECT_EQ(tokenizer->encode("a \xc3\xa9\n"), (std::vector<std::int32_t>{97, 32, 0xc3, 0xa9, 10}));
}

TEST_F(Gguf, TokenizersThatLlamaCppHasNotAreRefused) {
  trainer::TokenizerJsonConfig config;
  config.path = kHere + "tokenizers/llama2.json";
  fs::create_directories(scratch_.path("llama2"));
  fs::copy(kHere + "tokenizers/llama2.json", scratch_.path("llama2") + "/tokenizer.json");
  EXPECT_NE(error_of([&] {
              trainer::gguf_tokenizer(config, scratch_.path("llama2"), nlohmann::ordered_json::object(), 500,
                                      kQuiet);
            }).find("llama.cpp knows pre-tokenizers by name"),
            std::string::npos);
  const auto refused = [&](std::vector<std::pair<std::string, GgufValue>> metadata, const std::string& said) {
    const GgufFile file(file_with(scratch_.path("bad.gguf"), std::move(metadata)));
    nlohmann::json json;
    fs::remove_all(scratch_.path("bad"));
    fs::create_directories(scratch_.path("bad"));
    const std::string error =
        error_of([&] { trainer::write_tokenizer_of_gguf(file, scratch_.path("bad"), json, kQuiet); });
    EXPECT_NE(error.find(said), std::string::npos) << error;
  };
  const auto model = std::pair<std::string, GgufValue>{"tokenizer.ggml.model", GgufValue::text("gpt2")};
  const auto tokens = [](std::vector<std::string> all) {
    return std::pair<std::string, GgufValue>{"tokenizer.ggml.tokens", GgufValue::texts(std::move(all))};
  };
  const std::pair<std::string, GgufValue> merges{"tokenizer.ggml.merges", GgufValue::texts({})};
  refused({model}, "tokens: must be present");
  refused({model, tokens({"a", "b"})}, "merges: must be present");
  refused({model, tokens({"a", "a"}), merges}, "tokens[1]: a token must stand once");
  refused({model, tokens({"a", "\xff"}), merges}, "tokens[1]: must be UTF-8");
  refused({model, tokens({"a", "b"}), merges, {"tokenizer.ggml.pre", GgufValue::text("tekken")}},
          "pre: must be llama-bpe");
  refused({model, tokens({"a", "b"}), merges, {"tokenizer.ggml.eos_token_id", GgufValue::u32(2)}},
          "eos_token_id: must be the id of a token, below 2");
  const std::vector<std::int32_t> one{1}, bad{1, 9};
  refused({model, tokens({"a", "b"}), merges, {"tokenizer.ggml.token_type", GgufValue::i32s(one)}},
          "must be an array of 2 numbers");
  refused({model, tokens({"a", "b"}), merges, {"tokenizer.ggml.token_type", GgufValue::i32s(bad)}},
          "token_type[1]: must be a kind of token");
}

TEST_F(Gguf, TokensWithScoresBecomeASentencePieceModel) {
  std::vector<std::string> tokens{"<unk>",
                                  "<s>",
                                  "</s>",
                                  "\xe2\x96\x81",
                                  "a",
                                  "b",
                                  "ab",
                                  "\xe2\x96\x81"
                                  "ab"};
  std::vector<std::int32_t> kinds{2, 3, 3, 1, 1, 1, 1, 1};
  std::vector<float> scores{0, 0, 0, -3, -4, -5, -1, -2};
  trainer::GgufArray numbers{
      trainer::GgufType::f32, {}, std::string(reinterpret_cast<const char*>(scores.data()), 32)};
  const GgufFile file(
      file_with(scratch_.path("spm.gguf"), {{"tokenizer.ggml.model", GgufValue::text("llama")},
                                            {"tokenizer.ggml.tokens", GgufValue::texts(tokens)},
                                            {"tokenizer.ggml.token_type", GgufValue::i32s(kinds)},
                                            {"tokenizer.ggml.scores", {trainer::GgufType::array, numbers}},
                                            {"tokenizer.ggml.unknown_token_id", GgufValue::u32(0)},
                                            {"tokenizer.ggml.bos_token_id", GgufValue::u32(1)},
                                            {"tokenizer.ggml.eos_token_id", GgufValue::u32(2)}}));
  nlohmann::json config;
  ASSERT_TRUE(trainer::write_tokenizer_of_gguf(file, scratch_.path("."), config, kQuiet));
  const auto tokenizer = trainer::sentencepiece_tokenizer(scratch_.path("tokenizer.model"), true);
  EXPECT_EQ(tokenizer->encode("ab ab"), (std::vector<std::int32_t>{1, 7, 7}));
  EXPECT_EQ(tokenizer->encode("aab"), (std::vector<std::int32_t>{1, 3, 4, 6}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{7, 7}), "ab ab");
  EXPECT_EQ(tokenizer->end_of_text(), 2);
}

}  // namespace
}  // namespace meshloom::tests
