// Seed-OSS (ByteDance, 2025): a Llama with biases on queries, keys and values.
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

Family seed_oss_family() {
  Family family = llama_like("seed_oss", "SeedOssForCausalLM");
  set_absent(family, "num_key_value_heads", "8", "=num_attention_heads");
  set_absent(family, "head_dim", "128", "none");
  family.max_positions = 524288;
  family.fields.push_back(flag_rule(
      "attention_bias", "true", {"attention.q_proj.bias", "attention.k_proj.bias", "attention.v_proj.bias"}));
  family.fields.push_back(flag_rule("attention_out_bias", "false", {"attention.o_proj.bias"}));
  family.fields.push_back(mlp_bias_rule());
  family.fields.push_back(tied_rule("false"));
  return family;
}

}  // namespace meshloom::trainer
