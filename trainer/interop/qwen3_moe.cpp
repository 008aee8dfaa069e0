// Qwen 3 with experts, in all layers or some.
#include "trainer/interop/experts.h"

namespace meshloom::trainer {

Family qwen3_moe_family() {
  Family family = qwen3_family();
  family.name = "qwen3_moe";
  family.architecture = "Qwen3MoeForCausalLM";
  family.skeleton = [] { return with_experts(qwen3_family().skeleton()); };
  set_absent(family, "num_key_value_heads", "4");
  set_absent(family, "head_dim", "none");
  add_qwen_experts(family, {.hidden = "768", .dense = 6144, .experts = "128", .chosen = "8"});
  return family;
}

}  // namespace meshloom::trainer
