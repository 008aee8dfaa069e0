// Values of options that are integers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace meshloom::trainer {

// "must be an integer from LEAST to 2^63 - 1; found ..." for everything else.
CLI::Validator integer_from(std::int64_t least);

}  // namespace meshloom::trainer
