// Files that are no text are told by what they hold, never by their name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshloom::trainer {

constexpr std::size_t kHeadBytes = 4096;  // that a format is recognised by

// Text to train on is UTF-8 without NUL bytes; other control characters, a byte order mark of UTF-8 and any
// line ends are part of it. Throws Error (where = `where`) naming the format of a file of another kind
// (Parquet, archives, PDF, images, weights, ...) and what to do with it; a JSON value or lines of JSON
// objects, which JsonlFiles reads; UTF-16; and the first byte that is no UTF-8, with its place. `path` stands
// in the commands that the error suggests.
void check_text(std::string_view text, const std::string& path, const std::string& where);

// For a file whose lines should be JSON objects: throws Error for a known format that is none, and for a JSON
// array, by the file's first kHeadBytes.
void check_lines_of_json(std::string_view head, const std::string& path, const std::string& where);

}  // namespace meshloom::trainer
