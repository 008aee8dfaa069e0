#include "trainer/interop/gguf_names.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

namespace meshloom::trainer {
namespace {

using Change = GgufChange;

const std::string kBlock = "blk.{i}.", kModule = "model.layers.{i}.";

std::vector<GgufName> gpt2_names() {
  const std::string module = "transformer.h.{i}.";
  std::vector<GgufName> names{{"token_embd.weight", "transformer.wte.weight"},
                              {"position_embd.weight", "transformer.wpe.weight"},
                              {"output.weight", "lm_head.weight"}};
  for (const std::string kind : {"weight", "bias"}) {
    const Change change = kind == "weight" ? Change::transposed : Change::none;
    for (const auto& [gguf, hf] :
         {std::pair{"attn_qkv.", "attn.c_attn."}, std::pair{"attn_output.", "attn.c_proj."},
          std::pair{"ffn_up.", "mlp.c_fc."}, std::pair{"ffn_down.", "mlp.c_proj."}})
      names.push_back({kBlock + gguf + kind, module + hf + kind, change});
    names.push_back({kBlock + "attn_norm." + kind, module + "ln_1." + kind});
    names.push_back({kBlock + "ffn_norm." + kind, module + "ln_2." + kind});
    names.push_back({"output_norm." + kind, "transformer.ln_f." + kind});
  }
  return names;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& gguf_families() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"llama", "llama"},        {"mistral", "llama"},      {"mixtral", "llama"},   {"qwen2", "qwen2"},
      {"qwen3", "qwen3"},        {"qwen3_moe", "qwen3moe"}, {"smollm3", "smollm3"}, {"gemma2", "gemma2"},
      {"gemma3_text", "gemma3"}, {"gpt2", "gpt2"},          {"phi3", "phi3"},       {"granite", "granite"},
      {"olmo2", "olmo2"}};
  return all;
}

std::string gguf_architecture(const std::string& family) {
  for (const auto& [name, architecture] : gguf_families())
    if (family == name) return architecture;
  return {};
}

std::vector<GgufName> gguf_names(const std::string& family) {
  const std::string architecture = gguf_architecture(family);
  if (architecture.empty()) return {};
  if (family == "gpt2") return gpt2_names();
  const bool paired = architecture == "llama" || architecture == "smollm3" || architecture == "granite",
             gemma = architecture.starts_with("gemma"), phi3 = family == "phi3", olmo2 = family == "olmo2";
  const Change norm = gemma ? Change::norm : Change::none;
  std::vector<GgufName> names{{"token_embd.weight", "model.embed_tokens.weight"},
                              {"output_norm.weight", "model.norm.weight", norm},
                              {"output.weight", "lm_head.weight"}};
  for (const std::string kind : {"weight", "bias"}) {
    names.push_back({kBlock + "attn_q." + kind, kModule + "self_attn.q_proj." + kind,
                     paired ? Change::query : Change::none});
    names.push_back({kBlock + "attn_k." + kind, kModule + "self_attn.k_proj." + kind,
                     paired ? Change::key : Change::none});
    names.push_back({kBlock + "attn_v." + kind, kModule + "self_attn.v_proj." + kind});
    names.push_back({kBlock + "attn_output." + kind, kModule + "self_attn.o_proj." + kind});
    for (const std::string name : {"gate", "up", "down"})
      if (!phi3 || name == "down")
        names.push_back({kBlock + "ffn_" + name + "." + kind, kModule + "mlp." + name + "_proj." + kind});
  }
  if (phi3) {
    names.push_back({kBlock + "attn_qkv.weight", kModule + "self_attn.qkv_proj.weight"});
    names.push_back({kBlock + "ffn_up.weight", kModule + "mlp.gate_up_proj.weight"});
  }
  names.push_back({kBlock + "attn_norm.weight", kModule + "input_layernorm.weight", norm});
  names.push_back({kBlock + "attn_q_norm.weight", kModule + "self_attn.q_norm.weight", norm});
  names.push_back({kBlock + "attn_k_norm.weight", kModule + "self_attn.k_norm.weight", norm});
  if (gemma || olmo2) {
    names.push_back(
        {kBlock + "post_attention_norm.weight", kModule + "post_attention_layernorm.weight", norm});
    names.push_back({kBlock + "ffn_norm.weight", kModule + "pre_feedforward_layernorm.weight", norm});
    names.push_back({kBlock + "post_ffw_norm.weight", kModule + "post_feedforward_layernorm.weight", norm});
  } else {
    names.push_back({kBlock + "ffn_norm.weight", kModule + "post_attention_layernorm.weight"});
  }
  const bool mixtral = family == "mixtral";
  if (mixtral || family == "qwen3_moe") {
    const std::string module = kModule + (mixtral ? "block_sparse_moe." : "mlp.");
    names.push_back({kBlock + "ffn_gate_inp.weight", module + "gate.weight"});
    for (const auto& [gguf, ours, other] :
         {std::tuple{"gate", "w1", "gate_proj"}, std::tuple{"up", "w3", "up_proj"},
          std::tuple{"down", "w2", "down_proj"}})
      names.push_back({kBlock + "ffn_" + gguf + "_exps.weight",
                       module + "experts.{e}." + (mixtral ? ours : other) + ".weight", Change::experts});
  }
  return names;
}

namespace {

// llama.cpp has the two halves of a head, which RoPE turns together, as pairs of rows.
template <typename T>
std::vector<T> moved_rows(std::span<const T> rows, std::int64_t heads, std::int64_t row_size,
                          bool into_pairs) {
  std::vector<T> out(rows.size());
  const std::size_t width = static_cast<std::size_t>(row_size),
                    size = rows.size() / width / static_cast<std::size_t>(heads), half = size / 2;
  for (std::size_t row = 0; row < rows.size() / width; ++row) {
    const std::size_t head = row / size, in_head = row % size,
                      paired = head * size + 2 * (in_head % half) + in_head / half;
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>((into_pairs ? row : paired) * width);
    std::copy_n(from, width, out.begin() + static_cast<std::ptrdiff_t>((into_pairs ? paired : row) * width));
  }
  return out;
}

}  // namespace

std::vector<float> pair_rows(std::span<const float> rows, std::int64_t heads, std::int64_t row_size) {
  return moved_rows(rows, heads, row_size, true);
}

template <typename T>
std::vector<T> unpair_rows(std::span<const T> rows, std::int64_t heads, std::int64_t row_size) {
  return moved_rows(rows, heads, row_size, false);
}
template std::vector<float> unpair_rows(std::span<const float>, std::int64_t, std::int64_t);
template std::vector<std::byte> unpair_rows(std::span<const std::byte>, std::int64_t, std::int64_t);

std::vector<float> transposed(std::span<const float> matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(matrix.size());
  const auto height = static_cast<std::size_t>(rows), width = static_cast<std::size_t>(columns);
  for (std::size_t i = 0; i < height; ++i)
    for (std::size_t j = 0; j < width; ++j) out[j * height + i] = matrix[i * width + j];
  return out;
}

}  // namespace meshloom::trainer
