// LongRoPE in config.json: a factor for every pair of features in short texts, and another one in long texts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

// Whether transformers takes this rope_type for LongRoPE in a family that has no other scaling.
bool is_longrope(const std::string& type);

// The fields of a LongRotaryPosition, from `scaling` (rope_scaling or rope_parameters, at `here`) of a model of `limit` positions
// that was first trained with `original` of them. Notes that longer texts need long_texts. Throws Error.
std::string longrope_text(const nlohmann::json& scaling, const std::string& here, std::int64_t original,
                          std::int64_t limit, const Note& note);
// The fields of a model whose positions are a LongRotaryPosition; json has max_position_embeddings.
void write_longrope(const layers::Config& model, nlohmann::ordered_json& json);

// What transformers multiplies rotated features by where config.json does not say, for sequences that may be `factor` times longer.
double longrope_attention_factor(double factor, std::int64_t original);

}  // namespace meshloom::trainer
