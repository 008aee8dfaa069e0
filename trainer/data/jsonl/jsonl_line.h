// What one line of a .jsonl file of examples says, before it becomes tokens.
//
// A line is an object of one of these forms; other members are left alone:
//   {"prompt": TEXT, "completion": TEXT}              the completion is learned
//   {"messages": [{"role": ROLE, "content": TEXT}, ...]}   the contents of the assistant are learned
//   {"text": TEXT}                                    all of it is learned
// The last message is an assistant's. What else a message may hold, and how messages are written, is the business of their
// format (chat_format.h).
#pragma once

#include <nlohmann/json.hpp>
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

struct JsonlLine {
  std::vector<Turn> turns;          // of a pair or a text: one; of messages: none
  nlohmann::ordered_json messages;  // a list (checked_messages), or null
  nlohmann::ordered_json tools;     // of messages: the line's member "tools", for the template; or null
};

// Throws Error (where = `where`) for a line of none of the forms, or of two.
JsonlLine parse_jsonl_line(std::string_view line, const JsonlFields& fields, const std::string& where);

// Messages of a conversation: objects, at least one, with a text `role` each. Members that are null are left out, as
// transformers does. Throws Error.
nlohmann::ordered_json checked_messages(nlohmann::ordered_json messages, const std::string& where);

}  // namespace meshloom::trainer
