// LongRoPE in GGUF files of the architecture phi3: its factors are two tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/io/gguf.h"

namespace meshloom::trainer {

// The rope_scaling of a model that was first trained with `original` of its `context` positions, of which `rotated` features of a
// head rotate; null where the file has no factors. `attention`: what rotated features are multiplied by; none = 1. Throws Error.
nlohmann::json longrope_of_gguf(const GgufFile& file, std::int64_t rotated, std::int64_t context,
                                std::int64_t original, std::optional<double> attention);
bool is_longrope_tensor(const std::string& name);

// The keys (below the architecture) and the tensors of a config.json, as export writes it.
std::vector<std::pair<std::string, GgufValue>> gguf_longrope_keys(const nlohmann::ordered_json& config);
std::vector<std::pair<std::string, std::vector<float>>> gguf_longrope_tensors(
    const nlohmann::ordered_json& config);

}  // namespace meshloom::trainer
