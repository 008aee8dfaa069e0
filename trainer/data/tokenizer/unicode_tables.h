// Bridges the different versions of Unicode in the libraries used here and in Hugging Face tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// Converts a pattern for tokenizers' regular expressions (Oniguruma with Ruby's syntax, Unicode 16) into one for
// PCRE2 10.42 (Unicode 14) with PCRE2_MULTILINE: character classes that differ are written out, and so is what
// has another meaning there: \h, \v, {,n}, {n,m}+ and the flag m. Throws Error (where = `where`) for operations
// on classes, which PCRE2 would read as characters.
std::string portable_pattern(std::string_view pattern, const std::string& where);

// Whether tokenizers' normal forms (Unicode 9) do not know the character: newer marks and characters are
// neither reordered nor decomposed nor composed, although newer tables would do so.
bool is_unknown_to_normal_forms(std::int32_t code_point);

}  // namespace meshloom::trainer
