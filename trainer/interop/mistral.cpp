// Mistral: a Llama whose attention may be limited to a window (see rotary.h).
#include "trainer/interop/family.h"

namespace meshloom::trainer {

Family mistral_family() {
  Family family;
  family.name = "mistral";
  family.architecture = "MistralForCausalLM";
  family.skeleton = llama_skeleton;
  family.fields = llama_fields();
  for (FieldRule& field : family.fields)
    if (field.name == "num_key_value_heads") field.absent = "8";
  family.fields.push_back(tied_rule("false"));
  family.tensors = llama_tensors();
  family.head = "lm_head.weight";
  family.embedding = "model.embed_tokens.weight";
  return family;
}

}  // namespace meshloom::trainer
