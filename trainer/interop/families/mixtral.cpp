// Mixtral: a Mistral with experts.
#include "trainer/interop/families/experts.h"

namespace meshloom::trainer {

Family mixtral_family() {
  Family family = mistral_family();
  family.name = "mixtral";
  family.architecture = "MixtralForCausalLM";
  family.skeleton = [] { return with_experts(llama_skeleton()); };
  set_absent(family, "intermediate_size", "14336");
  set_absent(family, "rms_norm_eps", "1e-5");
  add_experts(family, {"block_sparse_moe", {"w1", "w3", "w2"}, "num_local_experts", "8", "num_experts"}, "2");
  family.fields.push_back(only_rule("router_jitter_noise", "0.0"));
  family.rope_theta = 1e6;
  family.windows = {.layers = WindowPattern::Layers::all, .absent_size = 0};
  return family;
}

}  // namespace meshloom::trainer
