#include "trainer/inference/request.h"

namespace meshloom::trainer {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::deadline:
      return "deadline";
    case FinishReason::error:
      return "error";
  }
  return "";
}

void RequestEvents::on_prompt(std::span<const TokenScore>) {}
void RequestEvents::on_embedding(std::span<const float>) {}
bool RequestEvents::on_page(std::int64_t, std::vector<std::byte>) { return false; }

}  // namespace meshloom::trainer
