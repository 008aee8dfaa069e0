// Bridges the different versions of Unicode in the libraries used here and in Hugging Face tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// Converts a pattern for tokenizers' regular expressions (Oniguruma, Unicode 16) into one for PCRE2 10.42
// (Unicode 14): character classes that differ are written out.
std::string portable_pattern(std::string_view pattern);

// Whether tokenizers' normal forms (Unicode 9) do not know the character: newer marks and characters are
// neither reordered nor decomposed nor composed, although newer tables would do so.
bool is_unknown_to_normal_forms(std::int32_t code_point);

}  // namespace meshloom::trainer
