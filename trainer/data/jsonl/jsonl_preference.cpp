#include "trainer/data/jsonl/jsonl_preference.h"

#include <algorithm>
#include <cmath>

#include "hal/error.h"
#include "trainer/data/jsonl/jsonl_line.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::optional<std::array<double, 2>> reference_of(const OrderedJson& line, const std::string& where) {
  const bool chosen = line.contains(kReferenceOfChosen);
  if (chosen != line.contains(kReferenceOfRejected))
    throw Error(
        where,
        shown(kReferenceOfChosen) + " and " + shown(kReferenceOfRejected) + " must both be there, or neither",
        "only " + shown(chosen ? kReferenceOfChosen : kReferenceOfRejected));
  if (!chosen) return {};
  std::array<double, 2> reference{};
  for (std::size_t i = 0; i < 2; ++i) {
    const char* name = i == 0 ? kReferenceOfChosen : kReferenceOfRejected;
    const OrderedJson& value = line[name];
    if (value.is_number()) reference[i] = value.get<double>();
    if (!value.is_number() || !std::isfinite(reference[i]) || reference[i] > 0)
      throw Error(where, shown(name) + " must be a log-probability, a number of at most 0",
                  shown_json(value));
  }
  return reference;
}

// The messages of an answer, the last of which must be an assistant's.
OrderedJson conversation(const OrderedJson& before, const OrderedJson& answer, const std::string& where) {
  OrderedJson messages = before.is_array() ? before : OrderedJson::array();
  for (const OrderedJson& message : checked_messages(answer, where)) messages.push_back(message);
  if (const std::string role = messages.back()["role"]; role != "assistant")
    throw Error(where, "the last message must be an assistant's, which is trained on", shown(role));
  return messages;
}

// The messages in which both begin alike, without the last of either.
OrderedJson common_beginning(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson common = OrderedJson::array();
  for (std::size_t i = 0; i + 1 < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) common.push_back(a[i]);
  return common;
}

void check_prompt(const OrderedJson& prompt, const OrderedJson& messages, const std::string& name,
                  const std::string& where) {
  const auto user = std::find_if(messages.begin(), messages.end(),
                                 [](const OrderedJson& message) { return message["role"] == "user"; });
  if (user == messages.end() || !user->contains("content") || (*user)["content"] != prompt)
    throw Error(
        where,
        shown(name) +
            " must be the first message of a user in the conversations beside it, or a list of messages",
        shown_json(prompt));
}

}  // namespace

JsonlPreference parse_preference(const OrderedJson& line, const PreferenceFields& fields,
                                 const std::string& where) {
  for (const std::string& name : {fields.chosen, fields.rejected})
    if (!line.contains(name)) throw Error(where, "must have a member " + shown(name), shown_json(line));
  const OrderedJson &chosen = line[fields.chosen], &rejected = line[fields.rejected];
  const auto prompt = fields.prompt.empty() ? line.end() : line.find(fields.prompt);
  const bool has_prompt = prompt != line.end();
  JsonlPreference found;
  found.reference = reference_of(line, where);
  if (chosen.is_string() && rejected.is_string()) {
    if (!has_prompt || !prompt->is_string())
      throw Error(where, "must have a text " + shown(fields.prompt) + " beside two answers that are texts",
                  has_prompt ? shown_json(*prompt) : "none");
    found.prompt = prompt->get<std::string>();
    found.chosen = chosen.get<std::string>();
    found.rejected = rejected.get<std::string>();
    return found;
  }
  if (!chosen.is_array() || !rejected.is_array())
    throw Error(where,
                shown(fields.chosen) + " and " + shown(fields.rejected) +
                    " must be two texts or two lists of messages",
                shown_json(chosen.is_array() || chosen.is_string() ? rejected : chosen));
  const auto at = [&](const std::string& name) { return where + ", " + name; };
  if (has_prompt && prompt->is_array()) found.prompt_messages = checked_messages(*prompt, at(fields.prompt));
  found.chosen_messages = conversation(found.prompt_messages, chosen, at(fields.chosen));
  found.rejected_messages = conversation(found.prompt_messages, rejected, at(fields.rejected));
  if (found.prompt_messages.is_array()) return found;
  found.prompt_messages = common_beginning(found.chosen_messages, found.rejected_messages);
  if (found.prompt_messages.empty())
    throw Error(where, "the conversations must begin with the same message", shown_json(rejected[0]));
  if (has_prompt) {
    if (!prompt->is_string())
      throw Error(where, shown(fields.prompt) + " must be a text or a list of messages", shown_json(*prompt));
    check_prompt(*prompt, found.chosen_messages, fields.prompt, where);
  }
  return found;
}

}  // namespace meshloom::trainer
