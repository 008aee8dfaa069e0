// Parses one line of a .jsonl file of examples.
//
// A line is an object of one of these forms; other members are ignored:
//   {"prompt": TEXT, "completion": TEXT}              the completion is trained on
//   {"messages": [{"role": ROLE, "content": TEXT}, ...]}   the assistant's contents are trained on
//   {"text": TEXT}                                    the whole text is trained on
//   {"prompt": ..., "chosen": ..., "rejected": ...}   a preference (jsonl_preference.h)
// The last message must be an assistant's. What else a message may hold, and how messages are written, is up
// to their format (chat_format.h).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/jsonl/jsonl_preference.h"

namespace meshloom::trainer {

// Names of the members; "" = the form is not used.
struct JsonlFields {
  std::string prompt = "prompt", completion = "completion", messages = "messages", text = "text",
              chosen = "chosen", rejected = "rejected";
};

// A text that is given, and the answer after it, which is trained on together with the end-of-text token that
// follows.
struct Turn {
  std::string context, answer;
};

struct JsonlLine {
  std::vector<Turn> turns;          // one for a prompt with completion or a text; none for messages
  nlohmann::ordered_json messages;  // a list (checked_messages), or null
  nlohmann::ordered_json tools;     // the member "tools" beside messages, for the template; or null
  std::optional<JsonlPreference> preference = {};  // then `turns` and `messages` are empty
};

// Throws Error (where = `where`) for a line of none of the forms, or of two.
JsonlLine parse_jsonl_line(std::string_view line, const JsonlFields& fields, const std::string& where);

// The line as a JSON object. Throws Error.
nlohmann::ordered_json line_object(std::string_view line, const std::string& where);

// Checks the messages of a conversation: a list of at least one object, each with a text `role`. Members that
// are null are removed, as transformers does. Throws Error.
nlohmann::ordered_json checked_messages(nlohmann::ordered_json messages, const std::string& where);

}  // namespace meshloom::trainer
