// Recognises files that are no text by their contents, never by their name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshloom::trainer {

constexpr std::size_t kHeadBytes = 4096;  // enough to recognise a format

// Training text is UTF-8 without NUL bytes; it may have other control characters, a byte order mark and any
// line ends. Throws Error (where = `where`) for all else and says what to do: for a file of another kind it
// names the format (Parquet, archives, PDF, images, weights, ...), for a JSON value or lines of JSON objects
// it points to JsonlFiles, and for an invalid byte it says where that is. The error suggests commands, in
// which `path` is used.
void check_text(std::string_view text, const std::string& path, const std::string& where);

// For a file whose lines should be JSON objects: throws Error when its first kHeadBytes are of a known other
// format or begin a JSON array.
void check_lines_of_json(std::string_view head, const std::string& path, const std::string& where);

}  // namespace meshloom::trainer
