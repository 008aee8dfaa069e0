// Converts between a GGUF file's metadata and the config.json that describes the same model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/io/gguf.h"

namespace meshloom::trainer {

// The config.json of the model in a file. Throws Error naming the file and the key: an architecture that is not known, a key
// of the architecture that is missing, malformed, or unknown and so may change the model.
nlohmann::json config_of_gguf(const GgufFile& file);

// The metadata that describe the model of a config.json of `family`, as export writes it. Throws Error for what llama.cpp's
// architecture cannot express.
std::vector<std::pair<std::string, GgufValue>> gguf_metadata(const std::string& family,
                                                             const nlohmann::ordered_json& config);

// The tensors of factors by which llama.cpp divides the frequencies of RoPE, of a config.json with Llama 3's rope_scaling or
// LongRoPE; none without them.
std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_tensors(
    const nlohmann::ordered_json& config);
// Whether a tensor of a file holds such factors, which its config.json has.
bool is_gguf_rope_tensor(const std::string& family, const std::string& name);

}  // namespace meshloom::trainer
