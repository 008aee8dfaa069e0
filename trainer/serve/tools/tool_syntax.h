// How models write calls of tools: a table with one row for each syntax, and the grammar of each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/inference/grammar/grammar.h"

namespace meshloom::trainer {

// A call is an object of JSON with the members "name" and `arguments`.
struct ToolSyntax {
  std::string_view name;
  // Its sign in templates: a text with all of `with`, one of `with_any` unless there are none, and none of `without`.
  std::vector<std::string_view> with, with_any, without;
  std::string_view
      open;  // stands before a call, or before the list of calls; "" = the call is the whole text
  std::string_view line;       // what follows `open`, and precedes `close`, where a grammar writes it
  std::string_view close;      // stands behind a call; "" = nothing does
  std::string_view arguments;  // "arguments" or "parameters"
  bool list = false;           // the calls are a list of JSON
  bool several = false;        // there may be more calls than one
  bool short_ids = false;      // templates of the syntax demand ids of nine letters and digits
};

const std::vector<ToolSyntax>& tool_syntaxes();
// Of a template's text; null when it is of none of the syntaxes.
const ToolSyntax* tool_syntax_of(std::string_view chat_template);
// JSON with "name" and "arguments", to which calls are held whose syntax is not known.
const ToolSyntax& plain_tool_syntax();

struct ToolFunction {
  std::string name, field;            // where it stands in the request, for errors
  nlohmann::ordered_json parameters;  // a schema
};

// The texts that call functions, one call or with `several` more. Throws Error, at a function's field for what is wrong with its
// parameters.
SharedGrammar grammar_of_calls(const ToolSyntax& syntax, const std::vector<ToolFunction>& functions,
                               bool several);

}  // namespace meshloom::trainer
