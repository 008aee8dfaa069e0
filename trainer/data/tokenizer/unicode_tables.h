// Where the tables of the libraries used here and those of Hugging Face tokenizers are of different versions
// of Unicode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// A pattern for tokenizers' regular expressions (Oniguruma, Unicode 16) as one for PCRE2 10.42 (Unicode 14):
// classes that differ are written out.
std::string portable_pattern(std::string_view pattern);

// Letters that tokenizers' normal forms (Unicode 9) do not know: marks and letters that came later neither
// move, nor decompose, nor join, where newer tables let them.
bool is_unknown_to_normal_forms(std::int32_t letter);

}  // namespace meshloom::trainer
