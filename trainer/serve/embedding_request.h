// What clients ask for in OpenAI's API, checked: the body of /v1/embeddings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/serve/request_fields.h"
#include "trainer/serve/served_model.h"

namespace meshloom::trainer {

struct EmbeddingRequest {
  std::string adapter;                            // "" = the model alone
  std::vector<std::vector<std::int32_t>> inputs;  // each of at least one token
  bool base64 = false;                            // f32, little-endian, in base64; else a list of numbers
  std::int64_t dimensions = 0;                    // the first so many numbers of each embedding
  std::vector<std::string> ignored;               // fields that are not known
};

// Throws ApiError for whatever the model or this server cannot do.
EmbeddingRequest embedding_request(const RequestJson& body, const ServedModel& model);

}  // namespace meshloom::trainer
