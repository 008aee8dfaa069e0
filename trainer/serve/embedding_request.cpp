#include "trainer/serve/embedding_request.h"

#include <fmt/format.h>

#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"
#include "trainer/serve/api_request.h"

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kInputs = 2048;  // as OpenAI has it

}  // namespace

EmbeddingRequest embedding_request(const RequestJson& body, const ServedModel& model) {
  const std::int64_t size = model.engine->embedding_size();
  if (size == 0)
    throw ApiError(400, "/v1/embeddings is not answered here; the server needs --pooling last or mean", {},
                   "not_enabled");
  RequestFields fields(body);
  EmbeddingRequest request;
  request.adapter = adapter_of_request(fields, model);
  if (const auto format = fields.text("encoding_format")) {
    if (*format != "float" && *format != "base64")
      refuse_field("encoding_format", "must be 'float' or 'base64'", shown(*format));
    request.base64 = *format == "base64";
  }
  request.dimensions = fields.integer("dimensions", 1, size).value_or(size);
  fields.text("user");
  fields.not_built("priority", {0});
  fields.not_built("truncate_prompt_tokens", {});
  fields.not_built("add_special_tokens", {true});
  fields.not_built("normalize", {true});
  fields.not_built("messages", {RequestJson::array()});
  request.inputs = texts_of_request(fields, "input", kInputs, model);
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    const std::string field = body["input"].is_array() && !body["input"][0].is_number()
                                  ? fmt::format("input[{}]", i)
                                  : std::string("input");
    const std::size_t tokens = request.inputs[i].size();
    if (tokens == 0) refuse_field(field, "must have at least one token", "none");
    if (static_cast<std::int64_t>(tokens) > model.engine->max_length())
      throw ApiError(
          400,
          fmt::format("{} must have at most {} tokens; found {}", field, model.engine->max_length(), tokens),
          "input", "context_length_exceeded");
  }
  request.ignored = fields.unknown();
  return request;
}

}  // namespace meshloom::trainer
