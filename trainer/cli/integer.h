// Values of options that are integers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace meshloom::trainer {

// Accepts integers from `min`; the error is "must be an integer from MIN to 2^63 - 1; found ...".
CLI::Validator integer_from(std::int64_t min);

}  // namespace meshloom::trainer
