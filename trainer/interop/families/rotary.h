// The fields of config.json for positions: rotary frequencies and the maximal sequence length. Their names
// and nesting have changed over the years; all forms are read, and the form that most versions of
// transformers read is written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

inline constexpr const char* kOriginal = "original_max_position_embeddings";

// The number of which transformers takes as many features of a head to be `rotated`, of `all`.
double partial_rotary_factor(std::int64_t rotated, std::int64_t all);

// Whether the field is one of those that are read here.
bool is_rotary_field(const Family& family, const std::string& name);

// Sets the positions of the attention and the model's SequenceLimit, as transformers 5.24 reads the fields.
// Returns the limit. Throws Error.
std::int64_t read_rotary(const nlohmann::json& json, const std::string& where, const Family& family,
                         layers::Config& model, const layers::ClassTable& classes, const Note& note);
// For families with a local_rope_theta: sets the positions of layers with windows, which read_windows has set.
void read_local_rotary(const nlohmann::json& json, const std::string& where, const Family& family,
                       std::int64_t limit, layers::CausalLM::Config& model, const layers::ClassTable& classes,
                       const Note& note);
void write_rotary(const layers::Config& model, const Family& family, std::int64_t sequence,
                  nlohmann::ordered_json& json);

}  // namespace meshloom::trainer
