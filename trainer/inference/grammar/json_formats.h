// The formats of strings that grammars hold texts to, as patterns.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// date, time, date-time (RFC 3339, without leap seconds), uuid and ipv4; none for other names.
std::optional<std::string> pattern_of_format(std::string_view format);

}  // namespace meshloom::trainer
