// What one line of a .jsonl file of examples says, before it becomes tokens.
//
// A line is an object of one of these forms; other members are left alone:
//   {"prompt": TEXT, "completion": TEXT}              the completion is learned
//   {"messages": [{"role": ROLE, "content": TEXT}, ...]}   the contents of the assistant are learned
//   {"text": TEXT}                                    all of it is learned
// ROLE is system, user or assistant, and the last message is an assistant's. A message reads "<|ROLE|>\n",
// its content, and a line's end; behind a content of the assistant stands the end-of-text token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::trainer {

// Names of the members; "" = a form that is not looked for.
struct JsonlFields {
  std::string prompt = "prompt", completion = "completion", messages = "messages", text = "text";
};

// A text that is given, and one behind it that is learned with the end-of-text token after it.
struct Turn {
  std::string context, answer;
};

// Throws Error (where = `where`) for a line of none of the forms, or of two.
std::vector<Turn> parse_jsonl_line(std::string_view line, const JsonlFields& fields,
                                   const std::string& where);

}  // namespace meshloom::trainer
