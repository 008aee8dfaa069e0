#include "trainer/cli/command.h"

#include <fmt/format.h>

#include <charconv>

namespace meshloom::trainer {

CLI::Validator integer_from(std::int64_t min) {
  return CLI::Validator(
      [min](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc{} && stop == end && value >= min) return {};
        return fmt::format("must be an integer from {} to 2^63 - 1; found '{}'", min, text);
      },
      "");
}

}  // namespace meshloom::trainer
