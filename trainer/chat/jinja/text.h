// UTF-8 text with the meaning of Python's str: positions count code points ("characters"); white space, case
// and printability are those of Unicode. All text is valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer::jinja {

// Whether every byte belongs to a code point that UTF-8 may write (no surrogates).
bool valid_utf8(std::string_view text);
std::size_t count_code_points(std::string_view text);
// The code point that starts at byte `at`; moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_code_point(std::string& text, char32_t code_point);
// The byte at which a code point starts, by its index; the end of the text when there are fewer.
std::size_t byte_of(std::string_view text, std::size_t code_point);

bool is_space(char32_t code_point);
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);  // 0 to 9 of some script
bool is_digit(char32_t code_point);    // also superscripts
bool is_numeric(char32_t code_point);  // also fractions
bool is_lower(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_title(char32_t code_point);

// Whether a text has cased characters, and all of them have this case.
bool all_lower(std::string_view text);
bool all_upper(std::string_view text);

enum class Side { left, right, both };
// Removes white space, or the given characters, at the sides.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view code_points);
// The lines of Python's splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);       // every word's first character in title case
std::string capitalize(std::string_view text);  // the text's first character in title case, the rest lower
std::string swap_case(std::string_view text);

// Python's repr: quoted, with unprintable characters escaped.
std::string repr(std::string_view text);

}  // namespace meshloom::trainer::jinja
