// SmolLM3: a Llama without rotary positions in every fourth layer (see no_rope.h); windows, if there are any, are in those
// layers.
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

Family smollm3_family() {
  Family family = llama_like("smollm3", "SmolLM3ForCausalLM");
  set_absent(family, "num_key_value_heads", "4", "=num_attention_heads");
  set_absent(family, "head_dim", "none");
  family.max_positions = 32768;
  family.rope_theta = 2000000;
  family.no_rope = true;
  family.windows = {.layers = WindowPattern::Layers::without_rope,
                    .reads_layer_types = true,
                    .needs_use_sliding_window = true,
                    .layer_types_suffice = true,
                    .absent_size = 0};
  family.fields.push_back(attention_bias_rule());
  family.fields.push_back(mlp_bias_rule());
  family.fields.push_back(tied_rule("true"));
  // An absent pad_token_id means 128004, which transformers refuses in smaller vocabularies.
  family.null_fields = {"pad_token_id"};
  return family;
}

}  // namespace meshloom::trainer
