#include "trainer/data/jsonl/jsonl_line.h"

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kDepth = 32;  // of the members that are ignored

std::string text_of(const OrderedJson& object, const std::string& name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) throw Error(where, "must have a member " + shown(name), shown_json(object));
  if (!found->is_string()) throw Error(where, shown(name) + " must be text", shown_json(*found));
  return found->get<std::string>();
}

}  // namespace

OrderedJson checked_messages(OrderedJson messages, const std::string& where) {
  if (!messages.is_array() || messages.empty())
    throw Error(where, "must be a list of messages, at least one", shown_json(messages));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string here = where + "[" + std::to_string(i) + "]";
    if (!messages[i].is_object()) throw Error(here, "a message must be an object", shown_json(messages[i]));
    text_of(messages[i], "role", here);
    OrderedJson kept = OrderedJson::object();
    for (const auto& [name, value] : messages[i].items())
      if (!value.is_null()) kept[name] = value;
    messages[i] = std::move(kept);
  }
  return messages;
}

OrderedJson line_object(std::string_view line, const std::string& where) {
  OrderedJson json = parse_ordered_json(line, where, "the line", kDepth);
  if (!json.is_object()) throw Error(where, "a line must be a JSON object", shown_json(json));
  return json;
}

JsonlLine parse_jsonl_line(std::string_view line, const JsonlFields& fields, const std::string& where) {
  const OrderedJson json = line_object(line, where);
  const auto has = [&](const std::string& name) { return !name.empty() && json.contains(name); };
  const bool preference = has(fields.chosen) || has(fields.rejected);
  // A preference has a prompt of its own.
  const bool pair = has(fields.completion) || (has(fields.prompt) && !preference);
  std::vector<std::string> found;
  if (preference) found.push_back(has(fields.chosen) ? fields.chosen : fields.rejected);
  if (pair) found.push_back(has(fields.prompt) ? fields.prompt : fields.completion);
  if (has(fields.messages)) found.push_back(fields.messages);
  if (has(fields.text)) found.push_back(fields.text);
  if (found.size() > 1)
    throw Error(where,
                "must be of one form; --set input." +
                    std::string(preference ? "chosen='\"\"' input.rejected"
                                : pair     ? "text"
                                           : "messages") +
                    "='\"\"' turns a form off",
                "members " + hal::join(found));
  if (preference) {
    JsonlLine line_of{
        {}, {}, {}, parse_preference(json, {fields.prompt, fields.chosen, fields.rejected}, where)};
    if (const auto tools = json.find("tools"); tools != json.end()) line_of.tools = *tools;
    return line_of;
  }
  if (pair) {
    std::string prompt = text_of(json, fields.prompt, where);
    if (has(fields.completion))
      return {{{std::move(prompt), text_of(json, fields.completion, where)}}, {}, {}};
    throw Error(where,
                "must have a member " + shown(fields.completion) + " beside " + shown(fields.prompt) +
                    "; prompts alone are for `meshloom train --reward`",
                shown_json(json));
  }
  if (has(fields.messages)) {
    const std::string here = where + ", " + fields.messages;
    JsonlLine found{{}, checked_messages(json[fields.messages], here), {}};
    if (const std::string role = found.messages.back()["role"]; role != "assistant")
      throw Error(here, "the last message must be an assistant's, which is trained on", shown(role));
    if (const auto tools = json.find("tools"); tools != json.end()) found.tools = *tools;
    return found;
  }
  if (has(fields.text)) return {{{"", text_of(json, fields.text, where)}}, {}, {}};
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(shown(name));
  std::string forms;
  const auto form = [&](const std::string& text) { forms += (forms.empty() ? "" : ", or ") + text; };
  if (!fields.prompt.empty()) form(shown(fields.prompt) + " and " + shown(fields.completion));
  if (!fields.messages.empty()) form(shown(fields.messages));
  if (!fields.text.empty()) form(shown(fields.text));
  if (!fields.chosen.empty()) form(shown(fields.chosen) + " and " + shown(fields.rejected));
  throw Error(where, "a line must have " + forms,
              names.empty() ? "an empty object" : "members " + hal::join(names));
}

}  // namespace meshloom::trainer
