// The responses of OpenAI's API as JSON.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/inference/request.h"
#include "trainer/serve/token_text.h"
#include "trainer/serve/tools/tool_reader.h"

namespace meshloom::trainer {

using ResponseJson = nlohmann::ordered_json;

// A token of a text, with what the model thought of it.
struct ScoredToken {
  std::int32_t id = 0;
  std::optional<float> logprob;  // none for the first token of a prompt
  std::vector<std::pair<std::int32_t, float>> top;
  std::int64_t offset = 0;  // characters of the text before it
};

// What all parts of a response have.
struct ResponseHead {
  bool chat = false;
  std::string id, model;
  std::time_t created = 0;
};

// A call of a tool, the nth of its answer.
struct CallPart {
  std::int64_t index = 0;
  std::string id;
  ToolCall call;
};

// What a choice says, or a part of it in a stream.
struct ChoicePart {
  std::int64_t index = 0;
  std::string text;
  std::vector<CallPart> calls = {};
  std::optional<std::vector<ScoredToken>> scores;
  std::string finish_reason;  // "" = null
};

// On one line for every client: the characters beyond ASCII that end lines by Unicode (U+0085, U+2028 and U+2029) are escaped, at which
// clients cut a stream that read it by lines of text, as those that use Python's httpx do.
std::string dumped(const ResponseJson& json);
ResponseJson usage_json(const Usage& usage);
// A whole response.
ResponseJson response_json(const ResponseHead& head, std::span<const ChoicePart> choices, const Usage& usage,
                           const TokenTexts& texts);
// A part of a stream: of a choice; the role that begins a chat's; and the usage at the end.
ResponseJson chunk_json(const ResponseHead& head, const ChoicePart& part, const TokenTexts& texts);
ResponseJson role_chunk_json(const ResponseHead& head, std::int64_t index);
ResponseJson usage_chunk_json(const ResponseHead& head, const Usage& usage);

}  // namespace meshloom::trainer
