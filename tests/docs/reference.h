// What a page refers to: links, files of this repository, code and messages that it quotes.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace meshloom::tests {

// Each of these says one sentence per reference that is wrong. `page` is a path below `root`, `text` what it says.

// Links to files and to headings: "[text](file#heading)". Addresses of the web are not followed.
std::vector<std::string> broken_links(const std::string& root, const std::string& page,
                                      const std::string& text);
// Words of code that begin with a room: `kernels/softmax/contract.cpp` must be there.
std::vector<std::string> missing_paths(const std::string& root, const std::string& page,
                                       const std::string& text);
// Blocks that open with "```LANGUAGE FILE" quote that file: each part between lines of "..." must stand in it. Spaces and the
// ends of lines do not count.
std::vector<std::string> wrong_quotes(const std::string& root, const std::string& page,
                                      const std::string& text);
// Rows of tables that begin with a message, "| `message` |": each part between "…" must stand in `sources`, in which
// string literals that follow each other are one (joined_literals).
std::vector<std::string> unknown_messages(const std::string& sources, const std::string& page,
                                          const std::string& text);
std::string joined_literals(const std::string& source);

// The heading's name in a link: "Adding an op" is adding-an-op.
std::string slug(const std::string& heading);

// Environment variables of ours that the program, the tests and the scripts read, and options of CMake.
std::set<std::string> variables_of(const std::string& root);

// Every file below the folder with one of these endings, as a path below `root`, sorted.
std::vector<std::string> files_below(const std::string& root, const std::string& folder,
                                     const std::vector<std::string>& endings);

}  // namespace meshloom::tests
