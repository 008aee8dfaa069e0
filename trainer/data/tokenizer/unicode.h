// What tokenizers need of Unicode: patterns with character classes, normal forms, both as Hugging Face tokenizers have them
// (unicode_tables.h). Bytes that are not UTF-8 pass through unchanged and match nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// A regular expression over UTF-8 whose \s, \p{L}, \w, ... know all scripts.
class UnicodeRegex {
 public:
  // Throws Error (where = `where`) for a pattern that is none.
  UnicodeRegex(const std::string& pattern, std::string where);
  // Gives the byte ranges of the matches from left to right; empty ones are left out. Throws Error when the pattern needs too
  // many steps.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& take) const;
  // All of them.
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string where_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);

// Bytes of the UTF-8 letter at the front of a text that is not empty; 1 where there is none.
std::size_t letter_bytes(std::string_view text);
// The first byte that belongs to no letter of UTF-8 (RFC 3629: no overlong forms, no surrogates) or is NUL; npos = none.
std::size_t first_bad_byte(std::string_view text);
// Whether a text starts (or ends) with a letter that has the property White_Space; its bytes, or 0.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

}  // namespace meshloom::trainer
