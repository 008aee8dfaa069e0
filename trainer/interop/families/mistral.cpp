// Mistral: a Llama whose attention may be limited to a window (see windows.h).
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

Family mistral_family() {
  Family family = llama_like("mistral", "MistralForCausalLM");
  set_absent(family, "num_key_value_heads", "8", "=num_attention_heads");
  family.max_positions = 131072;
  family.needs_head_dim = true;
  // With layer_types transformers loads it as a Ministral, which is the same model but reads layer_types.
  family.windows = {.layers = WindowPattern::Layers::all, .reads_layer_types = true};
  family.fields.push_back(tied_rule("false"));
  return family;
}

}  // namespace meshloom::trainer
