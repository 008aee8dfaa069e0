// How the architectures of Hugging Face transformers map to ours, as data: one table per family, which import and
// export both read. A family is a row of fields (config.json <-> the model's config tree) and a row of tensors
// (names in the safetensors files <-> parameter paths).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/models/causal_lm.h"

namespace meshloom::trainer {

// One field of config.json and where it stands in the config tree of the model.
struct FieldRule {
  enum class Kind : std::uint8_t {
    size,          // an integer in [1, 2^24]
    number,        // a finite number above 0
    inverse_root,  // a number too, and ours is 1 / sqrt of it
    choice,        // one of `choices`
  };
  std::string name;
  Kind kind = Kind::size;
  // All of them hold the value. None: the field says something that is the same in every model of ours, and only
  // its choices are taken.
  std::vector<std::string> paths = {};
  // What transformers takes when the field is absent, as JSON text; "=OTHER": what the field OTHER has; "": the
  // field must be there; "none": our path keeps its "none" (and "none" is written as an absent field).
  std::string absent = {};
  std::vector<std::pair<std::string, std::string>> choices =
      {};  // JSON text -> our text ("Silu{}" of a child)
  // What transformers takes when the field is null, in the same words; "": it refuses null, and so do we.
  // Where it is "none" and an absent field means something else, our "none" is written as null.
  std::string null = {};
  // Another name of the field (attribute_map in transformers), which wins where both are there.
  std::string alias = {};
};

// Which fields of config.json limit attention to a window of sliding_window positions, and in which layers.
struct WindowRule {
  // Where layer_types is absent, or is not read.
  enum class Layers : std::uint8_t {
    none,  // the family has no windows
    all,
    even,                // 0, 2, 4, ...
    from_max_window,     // those from max_window_layers on
    even_to_max_window,  // even ones below max_window_layers
  };
  Layers layers = Layers::none;
  bool typed = false;     // layer_types is read
  bool switched = false;  // there are windows only with use_sliding_window
  // What an absent sliding_window means, and whether null means no window (else it is refused).
  std::int64_t absent = 4096;  // 0 = no window
  bool null_is_none = true;
};

// One tensor of the files and the parameters it holds. "{i}" stands for the layer; "{e}", in theirs only, for the expert:
// each has a tensor there, and ours holds all of them, one after another along its first dimension. A rule whose
// parameters the model does not have is passed over (a bias that is not there).
struct TensorRule {
  std::vector<std::string> ours;  // several: one after another along their outputs
  std::string theirs;
  bool transposed = false;  // theirs is (inputs, outputs)
};

struct Family {
  std::string name;                                  // config.json's model_type
  std::string architecture;                          // "LlamaForCausalLM"
  layers::CausalLM::Config (*skeleton)() = nullptr;  // the tree before the fields are set
  std::vector<FieldRule> fields = {};
  bool rotary = true;                 // has the fields of rotary.h
  double rope_theta = 10000;          // where none is there
  std::int64_t max_positions = 2048;  // where max_position_embeddings is absent
  bool needs_head_dim = false;  // for YaRN and layer_types: transformers has none where head_dim is absent
  WindowRule windows = {};
  std::int64_t dense_hidden =
      0;  // above 0: has the fields of dense_layers.h; what an absent intermediate_size means
  std::vector<TensorRule> tensors = {};
  std::string head;  // their name of the output head; when tied, a copy of `embedding`
  std::string embedding;
  std::string prefix = {};                // that some files leave out of every name
  std::vector<std::string> ignored = {};  // tensors that are no parameters, with "{i}"
  // Fields of config.json that change nothing that a model of this family computes, beside those of every
  // family (harmless_fields.h). A field that is in no list is refused: it may change the model.
  std::vector<std::string> harmless = {};
};

// In the order export tries them.
const std::vector<Family>& families();
// By model_type; throws Error (where = `where`) that lists them. It suggests none: a name that looks alike is
// another model (gemma and gemma2).
const Family& find_family(const std::string& model_type, const std::string& where);

// Each in a file of its own.
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family gpt2_family();
Family mixtral_family();
Family qwen3_moe_family();
Family qwen2_moe_family();
Family gemma2_family();

// What Llama and its descendants share.
inline const std::string kLayer = "decoder.stack.layer.";
layers::CausalLM::Config llama_skeleton();
// A family with a Llama's fields and tensors: what is its own comes on top.
Family llama_like(const std::string& name, const std::string& architecture);
// The layer of a Llama, to be changed.
layers::TransformerLayer::Config& llama_layer(layers::CausalLM::Config& model);
// Adds biases to the attention's projections, where the field attention_bias says so.
FieldRule attention_bias_rule();
// Takes a field out of the family's table.
void drop_field(Family& family, const std::string& name);
// What an absent field means in this family, and what null does (FieldRule).
void set_absent(Family& family, const std::string& field, const std::string& value,
                const std::string& null = {});
// A field that only has one meaning here, `value` (JSON text), which is also what an absent one means.
FieldRule only_rule(const std::string& name, const std::string& value, const std::string& null = {});
// The choice that names the head: tied to the embedding or a matrix of its own.
FieldRule tied_rule(const std::string& absent);
// Activations by the names transformers has for them; of several for one, `written` is what export says.
std::vector<std::pair<std::string, std::string>> activation_choices(const std::string& written);

}  // namespace meshloom::trainer
