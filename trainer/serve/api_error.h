// What is wrong with a request, in the shape of OpenAI's errors.
#pragma once

#include <stdexcept>
#include <string>

#include "trainer/serve/http_server.h"

namespace meshloom::trainer {

struct ApiError : std::runtime_error {
  ApiError(int status_of_response, const std::string& message, std::string field = {}, std::string name = {})
      : std::runtime_error(message),
        status(status_of_response),
        param(std::move(field)),
        code(std::move(name)) {}
  int status;
  std::string param;  // the field of the request; "" = null
  std::string code;   // a name for programs; "" = null
};

// {"error": {"message", "type", "param", "code"}}, where the type is that of the status.
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
// A field that breaks a rule: status 400, "FIELD RULE; found FOUND".
[[noreturn]] void refuse_field(const std::string& field, const std::string& rule,
                               const std::string& found = {});

}  // namespace meshloom::trainer
