#include "trainer/inference/grammar/json_formats.h"

namespace meshloom::trainer {

std::optional<std::string> pattern_of_format(std::string_view format) {
  // Multiples of four; a century's year must be one of 400.
  const std::string leap = R"(((\d\d(0[48]|[2468][048]|[13579][26]))|(([02468][048]|[13579][26])00)))";
  const std::string date =
      R"((\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|)" +
      leap + "-02-29)";
  const std::string time = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+\-]([01]\d|2[0-3]):[0-5]\d))";
  const std::string byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  const auto whole = [](const std::string& pattern) { return "^(" + pattern + ")$"; };
  if (format == "date") return whole(date);
  if (format == "time") return whole(time);
  if (format == "date-time") return whole(date + "T" + time);
  if (format == "uuid") return whole("[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}");
  if (format == "ipv4") return whole("(" + byte + R"(\.){3})" + byte);
  return {};
}

}  // namespace meshloom::trainer
