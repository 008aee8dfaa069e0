// The fields of config.json that limit attention to a window, in all layers or in some.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "layers/models/causal_lm.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// The types of layers in layer_types: with a window, and without.
inline constexpr const char *kSliding = "sliding_attention", *kFull = "full_attention";

// Whether the field is one of those that are read here.
bool is_window_field(const Family& family, const std::string& name);
// Whether the attention of a layer has a window.
bool has_window(const layers::Config& layer);

// Sets the masks of the attention layers, as transformers 5.24 reads the fields. Windows of at least `limit`,
// the maximal sequence length, have no effect and are left out. If only some layers have windows, the model's
// stack becomes a HeterogeneousStack. Fields that the family ignores are noted when they say something else. Throws
// Error.
void read_windows(const nlohmann::json& json, const std::string& where, const Family& family,
                  std::int64_t limit, layers::CausalLM::Config& model, const layers::ClassTable& classes,
                  const Note& note);
// Throws Error for masks that are neither causal nor windows of one size.
void write_windows(const layers::Config& model, const Family& family, nlohmann::ordered_json& json);

}  // namespace meshloom::trainer
