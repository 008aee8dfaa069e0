// What clients ask for in OpenAI's API, checked: the bodies of /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/inference/grammar/token_masks.h"
#include "trainer/inference/sampler.h"
#include "trainer/serve/request_fields.h"
#include "trainer/serve/served_model.h"
#include "trainer/serve/tools/tool_request.h"

namespace meshloom::trainer {

struct ApiRequest {
  bool chat = false;
  std::string adapter;                             // "" = the model alone
  std::vector<std::vector<std::int32_t>> prompts;  // each of at least one token
  std::vector<std::string> echoes;                 // with `echo`: the text of each
  std::int64_t n = 1;                              // choices of each prompt
  SamplerOptions sampler;
  bool seeded = false;                     // the client gave the seed
  std::optional<std::int64_t> max_tokens;  // none = up to the model's length
  std::vector<std::string> stop;
  bool ignore_ends = false;
  std::vector<std::int32_t> ends;       // tokens that end a text
  std::shared_ptr<TokenMasks> grammar;  // that a text is held to
  AskedTools tools;                     // that it may call
  std::optional<int> logprobs;          // with so many alternatives
  bool echo = false, stream = false;
  bool usage_at_end = false, usage_in_chunks = false;  // of a stream
  std::vector<std::string> ignored;                    // fields that are not known

  // Of one prompt. At least 1 but for completions that ask for 0.
  std::int64_t tokens_after(std::size_t prompt, const ServedModel& model) const;
};

// Both throw ApiError for whatever the model or this server cannot do.
ApiRequest completion_request(const RequestJson& body, const ServedModel& model);
ApiRequest chat_request(const RequestJson& body, const ServedModel& model);

// The tokens of `messages`, through the model's chat template; `tools` may be null.
std::vector<std::int32_t> tokens_of_messages(RequestFields& fields, const RequestJson& tools,
                                             const ServedModel& model);
// The tokens of a text. Throws ApiError when it is surely longer than the model's length.
std::vector<std::int32_t> tokens_of_text(const std::string& text, const std::string& field,
                                         const ServedModel& model);
// The tokens of a field that is a text, a list of at most so many texts, a list of token ids or a list of such lists. `echoes` gets the
// text of each.
std::vector<std::vector<std::int32_t>> texts_of_request(RequestFields& fields, const std::string& name,
                                                        std::int64_t most, const ServedModel& model,
                                                        std::vector<std::string>* echoes = nullptr);
// A list of ids below the vocabulary's size.
std::vector<std::int32_t> checked_ids(const RequestJson& list, const std::string& field,
                                      const ServedModel& model);
// The adapter that the field `model` names; "" for the model itself, and without the field. Throws ApiError (404) for any other name.
std::string adapter_of_request(RequestFields& fields, const ServedModel& model);

}  // namespace meshloom::trainer
