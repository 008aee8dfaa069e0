// Regular expressions and normal forms over UTF-8, as in Hugging Face tokenizers (unicode_tables.h). Bytes
// that are not UTF-8 pass through unchanged and match nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::trainer {

// A regular expression over UTF-8, whose \s, \p{L}, \w, ... include all scripts.
class UnicodeRegex {
 public:
  // Throws Error (where = `where`) for an invalid pattern.
  UnicodeRegex(const std::string& pattern, std::string where);
  // Calls `emit` with the byte range of each match, from left to right. A match may be empty, but does not touch
  // the one before it then. Throws Error when matching needs too many steps.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& emit) const;
  // The byte ranges of all matches.
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string where_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form);

// The number of bytes of the UTF-8 character at the front of a text that is not empty; 1 when there is no
// valid character.
std::size_t code_point_bytes(std::string_view text);
// The position of the first byte that is NUL or no valid UTF-8 (RFC 3629: no overlong forms, no surrogates);
// npos = none.
std::size_t first_bad_byte(std::string_view text);
// The number of bytes of the character with the property White_Space that a text starts (or ends) with; 0 =
// none.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

}  // namespace meshloom::trainer
