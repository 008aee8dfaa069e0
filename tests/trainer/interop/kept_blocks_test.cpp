// A GGUF file whose weights are kept in its blocks: they are those of the import in f32, and layers may differ.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "hal/error.h"
#include "kernels/block_quantized/formats.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/interop/support.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/io/gguf.h"

namespace meshloom::tests {
namespace {

using trainer::GgufTensor;
using trainer::GgufValue;
namespace blocks = kernels::block_quantized;
namespace fs = std::filesystem;

constexpr std::int64_t kWidth = 256, kVocabulary = 61;

// A Llama of two layers and a tied head, with random bits in blocks that most llama.cpp files mix.
class KeptBlocks : public testing::Test {
 protected:
  using Formats = std::map<std::string, std::string>;  // by tensor; others have Q8_0
  void SetUp() override {
    scratch_file_ = scratch_.path("model.gguf");
    write({{"blk.0.attn_v.weight", "Q6_K"},
           {"blk.1.attn_v.weight", "Q4_K"},
           {"blk.0.ffn_up.weight", "Q5_0"},
           {"blk.1.ffn_up.weight", "F32"},
           {"blk.0.attn_q.weight", "Q4_0"},
           {"blk.1.attn_q.weight", "Q4_0"},
           {"token_embd.weight", "Q5_1"}});
  }
  void write(const Formats& formats) {
    const auto size = [](std::int64_t value) { return GgufValue::u32(value); };
    const std::vector<std::pair<std::string, GgufValue>> metadata{
        {"general.architecture", GgufValue::text("llama")},
        {"llama.block_count", size(2)},
        {"llama.context_length", size(64)},
        {"llama.embedding_length", size(kWidth)},
        {"llama.feed_forward_length", size(kWidth)},
        {"llama.attention.head_count", size(4)},
        {"llama.attention.head_count_kv", size(2)},
        {"llama.attention.layer_norm_rms_epsilon", GgufValue::f32(1e-5)},
        {"llama.rope.freq_base", GgufValue::f32(10000)}};
    std::vector<GgufTensor> tensors;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      const auto format = formats.find(name);
      const std::string type = shape.size() == 1 ? "F32" : format == formats.end() ? "Q8_0" : format->second;
      tensors.push_back({name, trainer::gguf_block(type), std::move(shape), 0, 0});
    };
    add("token_embd.weight", {kVocabulary, kWidth});
    add("output_norm.weight", {kWidth});
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      for (const char* norm : {"attn_norm", "ffn_norm"}) add(layer + norm + ".weight", {kWidth});
      for (const char* square : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
        add(layer + square + ".weight", {kWidth, kWidth});
      for (const char* narrow : {"attn_k", "attn_v"}) add(layer + narrow + ".weight", {kWidth / 2, kWidth});
    }
    const std::string header = trainer::gguf_header(metadata, tensors);
    std::string data(static_cast<std::size_t>(tensors.back().end), '\0');
    std::mt19937_64 random(5);
    for (const GgufTensor& tensor : tensors) {
      char* at = data.data() + tensor.begin;
      if (tensor.block->elements == 1) {
        for (std::int64_t i = 0; i < tensor.elements(); ++i) {
          const float value = static_cast<float>(random() % 1000) * 0.001f;
          std::memcpy(at + 4 * i, &value, 4);
        }
        continue;
      }
      for (std::int64_t i = 0; i < tensor.bytes(); ++i) at[i] = static_cast<char>(random());
      // Small scales and minimums in f16, wherever a block has them.
      const std::int64_t bytes = tensor.block->bytes;
      for (std::int64_t block = 0; block < tensor.bytes(); block += bytes)
        for (const std::int64_t place :
             {tensor.block->name == "Q6_K" ? bytes - 1 : std::int64_t{1}, std::int64_t{3}})
          if (place != 3 || tensor.block->name == "Q4_K" || tensor.block->name == "Q5_1")
            at[block + place] = 0x14;
    }
    std::ofstream(scratch_file_, std::ios::binary) << header << data;
  }
  trainer::Imported import(const std::string& out, bool keep) {
    return import_quietly(scratch_file_, scratch_.path(out), &notes_, {.keep_quantized = keep});
  }

  Scratch scratch_;
  std::string scratch_file_;
  std::vector<std::string> notes_;
};

std::vector<float> values_of(const trainer::StoredTensors& file, const std::string& name) {
  const trainer::StoredTensor* tensor = file.find(name);
  if (!tensor) return {};
  std::vector<float> values(static_cast<std::size_t>(tensor->bytes()) / 4);
  file.read(*tensor, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(KeptBlocks, AreThoseOfTheImportInF32) {
  const trainer::Imported wide = import("wide", false), kept = import("kept", true);
  EXPECT_EQ(kept.parameters, wide.parameters);
  for (const std::string& note : notes_) EXPECT_NE(note.find("has no tokenizer"), std::string::npos) << note;
  const trainer::Checkpoint from = trainer::open_checkpoint(wide.checkpoint),
                            to = trainer::open_checkpoint(kept.checkpoint);
  EXPECT_EQ(from.model.tensors().size(), to.model.tensors().size());
  const std::map<std::string, std::string> formats{
      {"decoder/stack/layer0/attention/v_proj/weight", "q6_k"},
      {"decoder/stack/layer1/attention/v_proj/weight", "q4_k"},
      {"decoder/stack/layer0/feed_forward/up_proj/weight", "q5_0"},
      {"decoder/stack/layer0/attention/q_proj/weight", "q4_0"},
      {"decoder/stack/layer1/attention/q_proj/weight", "q4_0"},
      {"decoder/embedding/weight", "q5_1"}};
  int in_blocks = 0;
  for (const trainer::StoredTensor& tensor : from.model.tensors()) {
    const std::vector<float> wanted = values_of(from.model, tensor.name);
    const trainer::StoredTensor* same = to.model.find(tensor.name + "_blocks");
    if (!same) {
      EXPECT_EQ(values_of(to.model, tensor.name), wanted) << tensor.name;
      continue;
    }
    ++in_blocks;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(same->bytes()));
    to.model.read(*same, std::as_writable_bytes(std::span(bytes)));
    const auto format = formats.find(tensor.name);
    std::vector<float> values(wanted.size());
    blocks::dequantize(*blocks::find_format(format == formats.end() ? "q8_0" : format->second), bytes.data(),
                       static_cast<std::int64_t>(values.size()), values.data());
    EXPECT_EQ(values, wanted) << tensor.name;
  }
  EXPECT_EQ(in_blocks, 14);  // seven in each layer but one in f32, and the embedding
  const std::string recipe = layers::print(recipe_of(kept.checkpoint));
  EXPECT_NE(recipe.find("HeterogeneousStack"), std::string::npos) << recipe;
}

TEST_F(KeptBlocks, AreExportedAsTheModelInF32) {
  const trainer::Imported wide = import("wide", false), kept = import("kept", true);
  const auto exported = [&](const std::string& name) {
    trainer::export_model(scratch_.path(name), scratch_.path(name + "-hf"), {}, classes(),
                          [](const std::string&) {});
    return read_text(scratch_.path(name + "-hf") + "/model.safetensors");
  };
  EXPECT_EQ(exported("wide"), exported("kept"));
}

TEST_F(KeptBlocks, OfOneFormatNeedNoOverrides) {
  write({});
  const std::string recipe = layers::print(recipe_of(import("kept", true).checkpoint));
  EXPECT_EQ(recipe.find("HeterogeneousStack"), std::string::npos) << recipe;
  EXPECT_NE(recipe.find("BlockQuantizedEmbedding"), std::string::npos) << recipe;
}

TEST_F(KeptBlocks, AreNoneInOtherFiles) {
  write({{"blk.0.attn_v.weight", "F32"}});
  EXPECT_NE(message_of([&] {
              import_quietly(model_directory("llama"), scratch_.path("out"), nullptr,
                             {.keep_quantized = true});
            }).find("--keep-quantized: needs a GGUF file"),
            std::string::npos);
}

}  // namespace
}  // namespace meshloom::tests
