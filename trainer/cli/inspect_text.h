// How numbers of `meshloom kernels --inspect` that a compiler may not tell are printed.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

namespace meshloom::trainer {

template <typename T>
std::string or_dash(const std::optional<T>& value, const char* unit = "") {
  return value ? fmt::format("{}{}", *value, unit) : "-";
}

}  // namespace meshloom::trainer
