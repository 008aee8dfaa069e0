// How the architectures of Hugging Face transformers map to models of this project, as data: one table per
// family, which both import and export read. A family has a list of fields (config.json <-> the model's
// config tree) and a list of tensors (names in the safetensors files <-> parameter paths).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layers/models/causal_lm.h"
#include "layers/norm/norm.h"

namespace meshloom::trainer {

// Receives what an import or an export leaves out, one line at a time.
using Note = std::function<void(const std::string&)>;

// One field of config.json and its place in the config tree of the model.
struct FieldRule {
  enum class Kind : std::uint8_t {
    size,          // an integer in [1, 2^24]
    number,        // a finite number above 0
    inverse_root,  // a number x; the config tree has 1 / sqrt(x)
    choice,        // one of `choices`
  };
  std::string name;
  Kind kind = Kind::size;
  // All these paths have the value. Empty: all models of the family have the same value, and only the choices
  // are accepted.
  std::vector<std::string> paths = {};
  // What an absent field means to transformers, as JSON text; "=OTHER": the value of the field OTHER; "": the
  // field is required; "none": the path keeps its "none" (and "none" is written as an absent field).
  std::string absent = {};
  // JSON text -> text in the config tree (such as "Silu{}" of a child).
  std::vector<std::pair<std::string, std::string>> choices = {};
  // What null means to transformers, in the same form; "": null is refused, as in transformers. If it is
  // "none" and an absent field means something else, "none" is written as null.
  std::string null = {};
  // Another name of the field (attribute_map in transformers), which has precedence when both are present.
  std::string alias = {};
};

// Which layers limit attention to a window of sliding_window positions, and how config.json says so.
struct WindowPattern {
  // The layers with windows when layer_types is absent or is not read.
  enum class Layers : std::uint8_t {
    none,  // the family has no windows
    all,
    even,                // 0, 2, 4, ...
    from_max_window,     // layers from max_window_layers on
    even_to_max_window,  // even layers below max_window_layers
    all_but_every,       // all but every sixth layer; a sliding_window_pattern is a number instead of six
    without_rope,        // the layers without rotary positions (no_rope.h)
  };
  Layers layers = Layers::none;
  bool reads_layer_types = false;
  bool needs_use_sliding_window = false;  // there are windows only with use_sliding_window
  bool layer_types_suffice = false;       // but layer_types are enough for windows
  std::int64_t absent_size = 4096;        // what an absent sliding_window means; 0 = no window
  bool null_is_none = true;               // a sliding_window of null means no window; false: null is refused
  std::int64_t max_window_layers = 28;    // what an absent max_window_layers means
};

// One tensor of the files and its parameters. "{i}" stands for the index of the layer. "{e}", in hf_name
// only, stands for the expert: each expert has a tensor of its own, and the parameter has all of them along
// its first dimension. A rule is skipped when the model does not have its parameters (a bias, for example).
struct TensorRule {
  std::vector<std::string> parameters;  // if several, one after another along their outputs
  std::string hf_name;
  bool transposed = false;  // the tensor is (inputs, outputs)
};

struct Family {
  std::string name;                                  // config.json's model_type
  std::string architecture;                          // "LlamaForCausalLM"
  layers::CausalLM::Config (*skeleton)() = nullptr;  // the tree before the fields are set
  std::vector<FieldRule> fields = {};
  bool rotary = true;                 // has the fields of rotary.h
  double rope_theta = 10000;          // when config.json has none
  std::int64_t max_positions = 2048;  // when max_position_embeddings is absent
  bool partial_rotary = false;        // reads partial_rotary_factor
  // Above 0: scales rotary positions by LongRoPE only (longrope.h), and this is what an absent
  // original_max_position_embeddings means.
  std::int64_t longrope_length = 0;
  bool needs_head_dim = false;    // transformers needs head_dim for YaRN and layer_types
  bool divides_by_heads = false;  // transformers refuses a hidden_size that is no multiple of the heads
  // Above 0: layers with windows have frequencies of their own, and this is their base when config.json has none. Such layers keep
  // their windows, however long, because the windows tell them from the others.
  double local_rope_theta = 0;
  bool no_rope = false;  // has the fields of no_rope.h
  WindowPattern windows = {};
  // Above 0: the family has the fields of dense_layers.h, and this is what an absent intermediate_size means.
  std::int64_t dense_hidden = 0;
  std::vector<TensorRule> tensors = {};
  std::string head;  // the name of the output head's tensor; when tied, a copy of `embedding`
  std::string embedding;
  std::string prefix = {};                        // some files omit it from every name
  std::vector<std::string> ignored_tensors = {};  // tensors that are no parameters, with "{i}"
  // Fields of config.json that do not change what a model of this family computes, besides those of all
  // families (ignored_fields.h). A field that is in no list is refused, because it may change the model.
  std::vector<std::string> ignored_fields = {};
  // Ignored fields that export writes as null unless it knows better, because an absent one means a token that a model may not
  // have.
  std::vector<std::string> null_fields = {};
};

// In the order export tries them.
const std::vector<Family>& families();
// The family of a model_type. Throws Error (where = `where`) that lists all families. It suggests none,
// because a similar name is another model (gemma and gemma2).
const Family& find_family(const std::string& model_type, const std::string& where);

// Families that others build on; each is in a file of its own.
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family gemma2_family();

// Shared by Llama and its descendants.
inline const std::string kLayer = "decoder.stack.layer.";
layers::CausalLM::Config llama_skeleton();
// A family with the fields and tensors of Llama, to which its own are added.
Family llama_like(const std::string& name, const std::string& architecture);
// The layer of a skeleton, to be edited.
layers::ResidualLayer::Config& llama_layer(layers::CausalLM::Config& model);
// A field that is true or false, as are the paths below the layer. `absent`: what an absent field means.
FieldRule flag_rule(const std::string& name, const std::string& absent,
                    const std::vector<std::string>& paths);
// The fields that say whether all projections of the attention, and of the feed-forward layer, have biases.
FieldRule attention_bias_rule();
FieldRule mlp_bias_rule();
// Puts norms of queries and keys, head by head, into a skeleton.
void with_qk_norms(layers::CausalLM::Config& model, const layers::Child<layers::Norm::Config>& norm);
// Gives a family with such a skeleton the eps of these norms, the biases below them and their tensors.
void add_qk_norms(Family& family);
// Removes a field from the family's table.
void drop_field(Family& family, const std::string& name);
// What an absent field means in this family, and what null does (FieldRule).
void set_absent(Family& family, const std::string& field, const std::string& value,
                const std::string& null = {});
// A field that must have this `value` (JSON text), which is also what an absent field means.
FieldRule only_rule(const std::string& name, const std::string& value, const std::string& null = {});
// The field that says whether the head is tied to the embedding or has a matrix of its own.
FieldRule tied_rule(const std::string& absent);
// The names of activations in transformers. When one activation has several names, export writes `written`.
std::vector<std::pair<std::string, std::string>> activation_choices(const std::string& written);

}  // namespace meshloom::trainer
