// Mistral: a Llama whose attention may be limited to a window (see rotary.h).
#include "trainer/interop/family.h"

namespace meshloom::trainer {

Family mistral_family() {
  Family family = llama_like("mistral", "MistralForCausalLM");
  set_absent(family, "num_key_value_heads", "8");
  family.fields.push_back(tied_rule("false"));
  return family;
}

}  // namespace meshloom::trainer
