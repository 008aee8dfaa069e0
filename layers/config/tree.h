// Functions over any config tree: printing, parsing, access by path, comparison, replacement.
//
// Text form (also `meshloom config`'s output, and what parse() reads):
//   CausalLM {
//     vocab_size = 256
//     decoder = Decoder { ... }
//     layers = [ A { ... }, B { ... } ]
//     name = "text"   flag = true   x = 1e-05   dims = [1, 2]   child = none   unset = required
//   }
// `#` starts a comment. A double is printed so that reading it gives the same bits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/suggest.h"
#include "layers/config/config.h"

namespace meshloom::layers {

std::string print(const Config& config);
// Fields that the text does not set keep their defaults. Throws Error, at "NAME:LINE", on wrong syntax, on unknown
// classes and fields (with a suggestion), on values of a wrong type and on children of a wrong class.
std::unique_ptr<Config> parse(std::string_view text, const ClassTable& classes, const std::string& name);
// The lines of the fields and items of lists that such a text sets, by path.
std::map<std::string, int> lines_of(std::string_view text, const ClassTable& classes);

// A path is "decoder.layer.attention.num_heads", or "layers[2].x" through an item of a list. These throw Error, with a
// suggestion, if there is nothing at the path.
std::string get(const Config& config, std::string_view path);  // in the text form
// `text` is a value in the text form; a string needs no quotes, and a child is "Class{...}". Throws Error if it is of a
// wrong type. Returns false if the field had this value before.
bool set(Config& config, std::string_view path, std::string_view text, const ClassTable& classes);

// Calls fn(path, node) for every node, parents before their children. The path of the root is "".
void visit(Config& root, const std::function<void(const std::string& path, Config& node)>& fn);
void visit(const Config& root, const std::function<void(const std::string& path, const Config& node)>& fn);

// (path, value) of every leaf in order, and (path, class) of every child.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);
// Lines "-path: value" and "+path: value" for what differs between the two trees; "" if nothing does.
std::string diff(const Config& before, const Config& after);

// replace() of select.h, for every node of the class `from`.
std::vector<std::string> replace(Config& root, std::string_view from, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped = nullptr);

// Throws Error, with a list of all of them, if required fields are not set.
void check_complete(const Config& config);

using hal::suggestion;

}  // namespace meshloom::layers
