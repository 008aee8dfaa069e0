#include "trainer/serve/api_error.h"

#include "trainer/serve/api_response.h"

namespace meshloom::trainer {
namespace {

std::string type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string error_json(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? ResponseJson() : ResponseJson(text);
  };
  return dumped({{"error",
                  {{"message", std::string(error.what())},
                   {"type", type_of(error.status)},
                   {"param", text_or_null(error.param)},
                   {"code", text_or_null(error.code)}}}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{error.status, error_json(error)};
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

void refuse_field(const std::string& field, const std::string& rule, const std::string& found) {
  throw ApiError(400, field + " " + rule + (found.empty() ? "" : "; found " + found), field);
}

}  // namespace meshloom::trainer
