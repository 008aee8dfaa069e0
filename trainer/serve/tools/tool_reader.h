// Finds calls of tools in a text that comes in parts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/serve/tools/tool_syntax.h"

namespace meshloom::trainer {

struct ToolCall {
  std::string name, arguments;  // the text of an object of JSON
};

// What does not parse as a call of one of the functions is text, and so is all text around calls but for blanks next to them.
class ToolReader {
 public:
  // `syntax` must outlive this. Calls beyond `most` are left out.
  ToolReader(const ToolSyntax& syntax, std::vector<std::string> functions, std::size_t most);

  struct Part {
    std::string text;
    std::vector<ToolCall> calls;
  };
  // What is final now: nothing that may be a call, or its beginning.
  Part add(std::string_view more);
  // The rest, when nothing follows.
  Part finish();

 private:
  enum class Found { call, text, open };  // open: more must come

  void read_marked(bool end, Part& part);
  void read_whole(bool end, Part& part);
  Found call_behind_mark(bool end, std::size_t& call_end, Part& part);
  // Adds the calls of an object or list; returns whether it is one of calls.
  bool take(std::string_view json, Part& part);
  void give(std::size_t bytes, Part& part);

  const ToolSyntax& syntax_;
  const std::vector<std::string> functions_;
  const std::size_t most_;
  std::string held_;        // text that is not final
  std::size_t body_ = 0;    // where it goes on behind the syntax's `open`; 0 = it does not begin with that
  bool only_text_ = false;  // no call can come
  bool behind_call_ = false;
  std::size_t calls_ = 0;
  // The end of the JSON at body_, sought as it comes.
  struct Scan {
    std::size_t at = 0;
    int depth = 0;
    bool string = false, escape = false, done = false;
    void advance(std::string_view text);
  };
  Scan scan_;
};

}  // namespace meshloom::trainer
