// What can be done with any config tree.
//
// Text form (also `meshloom config`'s output, and what parse() reads):
//   CausalLM {
//     vocab_size = 256
//     decoder = Decoder { ... }
//     layers = [ A { ... }, B { ... } ]
//     name = "text"   flag = true   x = 1e-05   dims = [1, 2]   child = none   unset = required
//   }
// `#` starts a comment. Doubles print so that they read back to the same bits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/suggest.h"
#include "layers/config/config.h"

namespace meshloom::layers {

std::string print(const Config& config);
// Throws Error (where = "NAME:LINE") on syntax, unknown classes or fields (with a suggestion), wrong types,
// a child of the wrong class. Fields that are not named keep their defaults.
std::unique_ptr<Config> parse(std::string_view text, const ClassTable& classes, const std::string& name);

// Paths: "decoder.layer.attention.num_heads", list items "layers[2].x". Unknown paths throw Error with a
// suggestion.
std::string get(const Config& config, std::string_view path);  // as text
// `text` is a value in the text form (a bare word is taken as a string where a string is wanted; a child takes
// "Class{...}"). Throws Error when the type is wrong. False when the value was the same already.
bool set(Config& config, std::string_view path, std::string_view text, const ClassTable& classes);

// Pre-order: path ("" for the root) and node.
void visit(Config& root, const std::function<void(const std::string& path, Config& node)>& fn);
void visit(const Config& root, const std::function<void(const std::string& path, const Config& node)>& fn);

// Every leaf as "path: value", in order; children as "path: Class".
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);
// Lines "-path: value" / "+path: value" where the two trees differ.
std::string diff(const Config& before, const Config& after);

// replace() of select.h for every node of class `from`.
std::vector<std::string> replace(Config& root, std::string_view from, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped = nullptr);

// Throws Error listing every required field that is not set.
void check_complete(const Config& config);

using hal::suggestion;

}  // namespace meshloom::layers
