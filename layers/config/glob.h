// Patterns over paths. The names of a path are separated by '.' or '/', which mean the same.
//   *      any part of one name        {a,b}  either text; braces may be nested
//   ?      one character of a name     **     any number of whole names, including none
// "**.attention.{q,v}_proj" matches every q_proj and v_proj of an attention. A list item is a name such as "layers[2]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::layers {

class Glob {
 public:
  // Throws Error if the pattern or one of its names is empty, or if its braces do not match.
  explicit Glob(std::string_view pattern);
  bool matches(std::string_view path) const;

 private:
  std::vector<std::vector<std::string>>
      alternatives_;  // the names of each pattern after braces were expanded
};

}  // namespace meshloom::layers
