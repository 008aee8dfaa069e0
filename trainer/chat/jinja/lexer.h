// Cuts a template into tokens: text, tags, and the contents of tags. The white space that trim_blocks,
// lstrip_blocks and the signs - and + remove is already removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer::jinja {

struct Token {
  enum Kind { data, print_begin, print_end, block_begin, block_end, name, string, integer, real, sign, end };
  Kind kind;
  int line;
  std::string text;  // of data, names, signs, and strings with resolved escapes
  std::int64_t whole = 0;
  double number = 0;
};

// Ends with a token of the kind `end`. Throws Error (where = `where` and the line).
std::vector<Token> tokens_of(std::string_view source, const std::string& where);

}  // namespace meshloom::trainer::jinja
