#include "trainer/serve/api_response.h"

#include <cmath>
#include <string_view>

namespace meshloom::trainer {
namespace {

// JSON has no infinity; OpenAI writes this for what is most improbable.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

ResponseJson completion_logprobs(const std::vector<ScoredToken>& tokens, const TokenTexts& texts) {
  ResponseJson names = ResponseJson::array(), logprobs = ResponseJson::array(), tops = ResponseJson::array(),
               offsets = ResponseJson::array();
  for (const ScoredToken& token : tokens) {
    const std::string name = texts.of(token.id).text;
    names.push_back(name);
    offsets.push_back(token.offset);
    if (!token.logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(*token.logprob));
    nlohmann::json top = nlohmann::json::object();  // by name, where two tokens may have the same text
    for (const auto& [id, logprob] : token.top) top.emplace(texts.of(id).text, finite(logprob));
    top.emplace(name, finite(*token.logprob));
    tops.push_back(ResponseJson(top));
  }
  return {{"tokens", names}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

ResponseJson chat_token(std::int32_t id, float logprob, const TokenTexts& texts) {
  const TokenText token = texts.of(id);
  ResponseJson bytes = ResponseJson::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.text}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

ResponseJson chat_logprobs(const std::vector<ScoredToken>& tokens, const TokenTexts& texts) {
  ResponseJson content = ResponseJson::array();
  for (const ScoredToken& token : tokens) {
    ResponseJson each = chat_token(token.id, token.logprob.value_or(0), texts);
    each["top_logprobs"] = ResponseJson::array();
    for (const auto& [id, logprob] : token.top)
      each["top_logprobs"].push_back(chat_token(id, logprob, texts));
    content.push_back(std::move(each));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

ResponseJson logprobs_json(bool chat, const ChoicePart& part, const TokenTexts& texts) {
  if (!part.scores) return nullptr;
  return chat ? chat_logprobs(*part.scores, texts) : completion_logprobs(*part.scores, texts);
}

// In a stream each call says which one it is.
ResponseJson calls_json(const std::vector<CallPart>& calls, bool stream) {
  ResponseJson list = ResponseJson::array();
  for (const CallPart& part : calls) {
    ResponseJson each = ResponseJson::object();
    if (stream) each["index"] = part.index;
    each["id"] = part.id;
    each["type"] = "function";
    each["function"] = {{"name", part.call.name}, {"arguments", part.call.arguments}};
    list.push_back(std::move(each));
  }
  return list;
}

ResponseJson reason_json(const ChoicePart& part) {
  return part.finish_reason.empty() ? ResponseJson() : ResponseJson(part.finish_reason);
}

ResponseJson head_json(const ResponseHead& head, const char* object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

ResponseJson chunk_head(const ResponseHead& head, ResponseJson choices) {
  ResponseJson json = head_json(head, head.chat ? "chat.completion.chunk" : "text_completion");
  json["choices"] = std::move(choices);
  return json;
}

}  // namespace

std::string dumped(const ResponseJson& json) {
  std::string text = json.dump(-1, ' ', false, ResponseJson::error_handler_t::replace);
  for (const auto& [bytes, escape] : {std::pair<std::string_view, std::string_view>("\xc2\x85", "\\u0085"),
                                      {"\xe2\x80\xa8", "\\u2028"},
                                      {"\xe2\x80\xa9", "\\u2029"}})
    for (std::size_t at = 0; (at = text.find(bytes, at)) != std::string::npos; at += escape.size())
      text.replace(at, bytes.size(), escape);
  return text;
}

ResponseJson usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

ResponseJson response_json(const ResponseHead& head, std::span<const ChoicePart> choices, const Usage& usage,
                           const TokenTexts& texts) {
  ResponseJson json = head_json(head, head.chat ? "chat.completion" : "text_completion");
  ResponseJson list = ResponseJson::array();
  for (const ChoicePart& choice : choices) {
    ResponseJson each{{"index", choice.index}};
    if (head.chat) {
      const bool silent = choice.text.empty() && !choice.calls.empty();
      each["message"] = {{"role", "assistant"},
                         {"content", silent ? ResponseJson() : ResponseJson(choice.text)},
                         {"refusal", nullptr}};
      if (!choice.calls.empty()) each["message"]["tool_calls"] = calls_json(choice.calls, false);
    } else {
      each["text"] = choice.text;
    }
    each["logprobs"] = logprobs_json(head.chat, choice, texts);
    each["finish_reason"] = reason_json(choice);
    list.push_back(std::move(each));
  }
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  return json;
}

ResponseJson chunk_json(const ResponseHead& head, const ChoicePart& part, const TokenTexts& texts) {
  ResponseJson choice{{"index", part.index}};
  if (head.chat) {
    choice["delta"] = part.text.empty() ? ResponseJson::object() : ResponseJson{{"content", part.text}};
    if (!part.calls.empty()) choice["delta"]["tool_calls"] = calls_json(part.calls, true);
  } else {
    choice["text"] = part.text;
  }
  choice["logprobs"] = logprobs_json(head.chat, part, texts);
  choice["finish_reason"] = reason_json(part);
  return chunk_head(head, ResponseJson::array({choice}));
}

ResponseJson role_chunk_json(const ResponseHead& head, std::int64_t index) {
  const ResponseJson choice{{"index", index},
                            {"delta", {{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}};
  return chunk_head(head, ResponseJson::array({choice}));
}

ResponseJson usage_chunk_json(const ResponseHead& head, const Usage& usage) {
  ResponseJson json = chunk_head(head, ResponseJson::array());
  json["usage"] = usage_json(usage);
  return json;
}

}  // namespace meshloom::trainer
