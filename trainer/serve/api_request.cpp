#include "trainer/serve/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "hal/error.h"
#include "trainer/data/jsonl/jsonl_line.h"
#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"
#include "trainer/serve/request_grammar.h"

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kChoices = 16, kAllChoices = 1024, kAlternatives = 20;
constexpr std::size_t kStops = 16, kStopBytes = 256, kBiases = 1024;
// No token of the tokenizers that are common has more bytes; longer texts need not be tokenized to be too long.
constexpr std::int64_t kTokenBytes = 1024;

std::vector<std::string> stops_of(RequestFields& fields) {
  const RequestJson* value = fields.find("stop");
  if (!value) return {};
  std::vector<std::string> stops;
  const auto add = [&](const RequestJson& each, const std::string& field) {
    if (!each.is_string()) refuse_field(field, "must be text", shown_value(each));
    stops.push_back(each.get<std::string>());
    if (stops.back().empty() || stops.back().size() > kStopBytes)
      refuse_field(field, fmt::format("must have 1 to {} bytes", kStopBytes),
                   std::to_string(stops.back().size()));
  };
  if (!value->is_array()) {
    add(*value, "stop");
    return stops;
  }
  if (value->size() > kStops)
    refuse_field("stop", fmt::format("must have at most {} texts", kStops), std::to_string(value->size()));
  for (std::size_t i = 0; i < value->size(); ++i) add((*value)[i], fmt::format("stop[{}]", i));
  return stops;
}

std::vector<std::pair<std::int32_t, double>> biases_of(RequestFields& fields, const ServedModel& model) {
  const RequestJson* value = fields.find("logit_bias");
  if (!value) return {};
  if (!value->is_object())
    refuse_field("logit_bias", "must be an object of token ids and numbers", shown_value(*value));
  if (value->size() > kBiases)
    refuse_field("logit_bias", fmt::format("must have at most {} entries", kBiases),
                 std::to_string(value->size()));
  std::vector<std::pair<std::int32_t, double>> biases;
  for (const auto& [name, bias] : value->items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 ||
        id >= model.engine->vocabulary())
      refuse_field("logit_bias", fmt::format("must have token ids in [0, {})", model.engine->vocabulary()),
                   shown(name));
    const double number = bias.is_number() ? bias.get<double>() : 1000;
    if (!(number >= -100 && number <= 100))
      refuse_field("logit_bias", "must have numbers in [-100, 100]", shown_value(bias));
    biases.emplace_back(static_cast<std::int32_t>(id), number);
  }
  return biases;
}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 1;
}

// What both kinds have.
void read_common(RequestFields& fields, const ServedModel& model, ApiRequest& request) {
  request.n = fields.integer("n", 1, kChoices).value_or(1);
  SamplerOptions& sampler = request.sampler;
  sampler.temperature = fields.number("temperature", 0, 2).value_or(1);
  sampler.top_p = fields.number("top_p", 0, 1, true).value_or(1);
  sampler.top_k = std::max<std::int64_t>(0, fields.integer("top_k", -1, INT32_MAX).value_or(0));
  sampler.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampler.repetition_penalty = fields.number("repetition_penalty", 0, 10, true).value_or(1);
  sampler.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  sampler.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  sampler.logit_bias = biases_of(fields, model);
  const auto seed = fields.integer("seed", 0, INT64_MAX);
  request.seeded = seed.has_value();
  sampler.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  request.stop = stops_of(fields);
  request.ignore_ends = fields.boolean("ignore_eos").value_or(false);
  if (!request.ignore_ends) request.ends = model.ends;
  request.stream = fields.boolean("stream").value_or(false);
  if (const RequestJson* options = fields.find("stream_options")) {
    if (!options->is_object()) refuse_field("stream_options", "must be an object", shown_value(*options));
    if (!request.stream) refuse_field("stream_options", "must be left out where stream is false");
    RequestFields inner(*options, "stream_options.");
    request.usage_at_end = inner.boolean("include_usage").value_or(false);
    request.usage_in_chunks = inner.boolean("continuous_usage_stats").value_or(false);
    for (const std::string& name : inner.unknown()) request.ignored.push_back(name);
  }
  fields.text("user");

  static const std::vector<RequestJson> kNone{RequestJson::array(), RequestJson::object(), false, ""};
  fields.not_built("best_of", {request.n});
  fields.not_built("use_beam_search", {false});
  request.grammar = grammar_of_request(fields, *model.grammars);
  for (const char* name : {"prompt_logprobs", "cache_salt", "stop_token_ids", "chat_template_kwargs",
                           "logits_processors", "truncate_prompt_tokens", "bad_words", "allowed_token_ids",
                           "include_stop_str_in_output", "return_token_ids", "prompt_embeds", "lora_request"})
    fields.not_built(name, kNone);
  fields.not_built("priority", {0});
  fields.not_built("min_tokens", {0});
}

// Rules that join several fields, and the unknown ones.
void finish(RequestFields& fields, const ServedModel& model, ApiRequest& request,
            const std::string& prompt_field) {
  if (const auto all = static_cast<std::int64_t>(request.prompts.size()) * request.n; all > kAllChoices)
    refuse_field("n", fmt::format("times the number of prompts must be at most {}", kAllChoices),
                 std::to_string(all));
  const std::int64_t length = model.engine->max_length();
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string field =
        request.prompts.size() > 1 ? fmt::format("{}[{}]", prompt_field, i) : prompt_field;
    const auto size = static_cast<std::int64_t>(request.prompts[i].size());
    if (size == 0) refuse_field(field, "must have at least one token", "none");
    const std::int64_t wanted = request.max_tokens.value_or(1);
    if (const auto begun = static_cast<std::int64_t>(model.decoder_prompt.size()); begun > 0) {
      if (size > model.engine->max_source())
        throw ApiError(
            400,
            fmt::format("{} must have at most {} tokens, as the source of a model with an encoder; "
                        "found {}",
                        field, model.engine->max_source(), size),
            prompt_field, "context_length_exceeded");
      if (wanted > length - begun)
        throw ApiError(
            400, fmt::format("what is written must have at most {} tokens; found {}", length - begun, wanted),
            "max_tokens", "context_length_exceeded");
      continue;
    }
    if (size > length || wanted > length - size)
      throw ApiError(
          400,
          fmt::format("{} and what follows it must have at most {} tokens together; found {} and {}", field,
                      length, size, wanted),
          prompt_field, "context_length_exceeded");
  }
  for (std::string& name : fields.unknown()) request.ignored.push_back(std::move(name));
}

}  // namespace

std::int64_t ApiRequest::tokens_after(std::size_t prompt, const ServedModel& model) const {
  const std::vector<std::int32_t>& begun =
      model.decoder_prompt.empty() ? prompts[prompt] : model.decoder_prompt;
  return max_tokens.value_or(model.engine->max_length() - static_cast<std::int64_t>(begun.size()));
}

std::vector<std::int32_t> checked_ids(const RequestJson& list, const std::string& field,
                                      const ServedModel& model) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::int64_t id = -1;
    if (!natural(list[i], id) || id >= model.engine->vocabulary())
      refuse_field(fmt::format("{}[{}]", field, i),
                   fmt::format("must be a token id in [0, {})", model.engine->vocabulary()),
                   shown_value(list[i]));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::vector<std::int32_t> tokens_of_text(const std::string& text, const std::string& field,
                                         const ServedModel& model) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  const std::int64_t max_tokens =
      model.decoder_prompt.empty() ? model.engine->max_length() : model.engine->max_source();
  if (bytes / kTokenBytes > max_tokens)
    throw ApiError(
        400,
        fmt::format("{} must have at most {} tokens; found a text of {} bytes", field, max_tokens, bytes),
        field, "context_length_exceeded");
  try {
    return model.encode(text);
  } catch (const Error& error) {
    refuse_field(field, "must be text that the tokenizer accepts", error.what());
  }
}

std::vector<std::vector<std::int32_t>> texts_of_request(RequestFields& fields, const std::string& name,
                                                        std::int64_t most, const ServedModel& model,
                                                        std::vector<std::string>* echoes) {
  const RequestJson* value = fields.find(name);
  constexpr const char* kForms = "must be text, a list of texts, a list of token ids or a list of such lists";
  if (!value) refuse_field(name, kForms, "none");
  std::vector<std::vector<std::int32_t>> texts;
  const auto add_text = [&](const RequestJson& text, const std::string& field) {
    texts.push_back(tokens_of_text(text.get<std::string>(), field, model));
    if (echoes) echoes->push_back(text.get<std::string>());
  };
  const auto add_ids = [&](const RequestJson& list, const std::string& field) {
    texts.push_back(checked_ids(list, field, model));
    if (echoes) echoes->push_back(model.tokenizer->decode(texts.back()));
  };
  if (value->is_string()) {
    add_text(*value, name);
  } else if (!value->is_array() || value->empty()) {
    refuse_field(name, kForms, shown_value(*value));
  } else if ((*value)[0].is_number()) {
    add_ids(*value, name);
  } else {
    if (static_cast<std::int64_t>(value->size()) > most)
      refuse_field(name, fmt::format("must have at most {} texts", most), std::to_string(value->size()));
    for (std::size_t i = 0; i < value->size(); ++i) {
      const RequestJson& each = (*value)[i];
      const std::string field = fmt::format("{}[{}]", name, i);
      if (each.is_string() && (*value)[0].is_string())
        add_text(each, field);
      else if (each.is_array() && (*value)[0].is_array())
        add_ids(each, field);
      else
        refuse_field(field, (*value)[0].is_string() ? "must be text" : "must be a list of token ids",
                     shown_value(each));
    }
  }
  return texts;
}

std::string adapter_of_request(RequestFields& fields, const ServedModel& model) {
  const auto name = fields.text("model");
  if (!name || *name == model.name) return {};
  const std::vector<std::string> adapters = model.engine->adapters();
  if (std::find(adapters.begin(), adapters.end(), *name) != adapters.end()) return *name;
  std::string known = "'" + model.name + "'";
  for (std::size_t i = 0; i < adapters.size(); ++i)
    known += (i + 1 < adapters.size() ? ", '" : " or '") + adapters[i] + "'";
  throw ApiError(404, fmt::format("model must be {}; found {}", known, shown(*name)), "model",
                 "model_not_found");
}

ApiRequest completion_request(const RequestJson& body, const ServedModel& model) {
  RequestFields fields(body);
  ApiRequest request;
  request.adapter = adapter_of_request(fields, model);
  read_common(fields, model, request);
  request.max_tokens = fields.integer("max_tokens", 0, INT64_MAX).value_or(16);
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo && !model.decoder_prompt.empty())
    refuse_field("echo",
                 "must be false for a model with an encoder, whose prompt is not the beginning of a text",
                 "true");
  if (const auto count = fields.integer("logprobs", 0, kAlternatives))
    request.logprobs = static_cast<int>(*count);
  fields.not_built("suffix", {""});
  request.prompts =
      texts_of_request(fields, "prompt", kAllChoices, model, request.echo ? &request.echoes : nullptr);
  finish(fields, model, request, "prompt");
  return request;
}

std::vector<std::int32_t> tokens_of_messages(RequestFields& fields, const RequestJson& tools,
                                             const ServedModel& model) {
  const RequestJson* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    refuse_field("messages", "must be a list of at least one message",
                 messages ? shown_value(*messages) : "none");
  if (!model.chat) throw ApiError(400, model.no_chat, "messages");
  RequestJson list = *messages;
  auto bytes = static_cast<std::int64_t>(tools.is_null() ? 0 : tools.dump().size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object())
      refuse_field(fmt::format("messages[{}]", i), "must be an object", shown_value(list[i]));
    const std::string message = fmt::format("messages[{}]", i);
    bytes += static_cast<std::int64_t>(read_calls_of_message(list[i], message, model));
    const auto content = list[i].find("content");
    if (content == list[i].end()) continue;
    const std::string field = message + ".content";
    if (content->is_array()) {  // parts: the texts on lines of their own
      std::string text;
      for (std::size_t part = 0; part < content->size(); ++part) {
        const RequestJson& each = (*content)[part];
        const std::string here = fmt::format("{}[{}]", field, part);
        if (!each.is_object() || each.value("type", RequestJson()) != "text")
          refuse_field(here, "must be of the type text, as no other is built", shown_value(each));
        const auto inner = each.find("text");
        if (inner == each.end() || !inner->is_string())
          refuse_field(here + ".text", "must be text", shown_value(each));
        text += (text.empty() ? "" : "\n") + inner->get<std::string>();
      }
      *content = text;
    } else if (!content->is_string() && !content->is_null()) {
      refuse_field(field, "must be text or a list of parts", shown_value(*content));
    }
    if (content->is_string())
      bytes += static_cast<std::int64_t>(content->get_ref<const std::string&>().size());
  }
  if (bytes / kTokenBytes > model.engine->max_length())
    throw ApiError(400,
                   fmt::format("messages must have at most {} tokens; found texts of {} bytes",
                               model.engine->max_length(), bytes),
                   "messages", "context_length_exceeded");
  try {
    return model.chat->prompt(checked_messages(std::move(list), "messages"), tools, "messages");
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "messages");
  }
}

ApiRequest chat_request(const RequestJson& body, const ServedModel& model) {
  RequestFields fields(body);
  ApiRequest request;
  request.adapter = adapter_of_request(fields, model);
  request.chat = true;
  read_common(fields, model, request);
  const auto tokens = fields.integer("max_tokens", 1, INT64_MAX);
  const auto completion_tokens = fields.integer("max_completion_tokens", 1, INT64_MAX);
  if (tokens && completion_tokens && *tokens != *completion_tokens)
    refuse_field("max_tokens", "must equal max_completion_tokens where both are given",
                 std::to_string(*tokens));
  request.max_tokens = completion_tokens ? completion_tokens : tokens;
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kAlternatives);
  if (top.value_or(0) > 0 && !logprobs) refuse_field("top_logprobs", "needs logprobs to be true");
  if (logprobs) request.logprobs = static_cast<int>(top.value_or(0));
  request.tools = tools_of_request(fields, model, request.grammar != nullptr, request.ignored);
  if (request.tools.grammar) request.grammar = request.tools.grammar;
  fields.not_built("functions", {RequestJson::array()});
  fields.not_built("function_call", {"none", "auto"});
  fields.not_built("modalities", {RequestJson::array({"text"})});
  fields.not_built("audio", {});
  fields.not_built("prediction", {});
  fields.not_built("echo", {false});
  fields.not_built("chat_template", {});
  fields.not_built("documents", {RequestJson::array()});
  fields.not_built("add_generation_prompt", {true});
  fields.not_built("continue_final_message", {false});
  request.prompts.push_back(tokens_of_messages(fields, request.tools.shown, model));
  if (const auto end = model.chat->end_of_turn();
      end && !request.ignore_ends &&
      std::find(request.ends.begin(), request.ends.end(), *end) == request.ends.end())
    request.ends.push_back(*end);
  finish(fields, model, request, "messages");
  return request;
}

}  // namespace meshloom::trainer
