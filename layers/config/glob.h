// Patterns over paths: names separated by '.' or '/', which mean the same.
//   *      any part of one name        {a,b}  either text, nested where wanted
//   ?      one character of a name     **     any number of whole names, none included
// "**.attention.{q,v}_proj" is every q_proj and v_proj of an attention; list items are names like "layers[2]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::layers {

class Glob {
 public:
  // Throws Error on an empty pattern, an empty name and braces that do not pair.
  explicit Glob(std::string_view pattern);
  bool matches(std::string_view path) const;

 private:
  std::vector<std::vector<std::string>> alternatives_;  // names, braces resolved
};

}  // namespace meshloom::layers
