// Parses a line of a .jsonl file that holds a preference: two answers to one prompt, of which the first is chosen.
//
// A line is an object of one of these forms, which are those of TRL; other members are ignored:
//   {"prompt": TEXT, "chosen": TEXT, "rejected": TEXT}
//   {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES}    the answers follow the prompt
//   {"chosen": MESSAGES, "rejected": MESSAGES}    whole conversations; the messages in which they begin alike are the prompt. A text
//                                                 "prompt" beside them must be the first message of a user
// Beside these, "ref_chosen_logps" and "ref_rejected_logps" are the log-probabilities of the answers under a reference model.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace meshloom::trainer {

constexpr const char* kReferenceOfChosen = "ref_chosen_logps";
constexpr const char* kReferenceOfRejected = "ref_rejected_logps";

struct JsonlPreference {
  std::string prompt, chosen, rejected;    // texts, where there are no messages
  nlohmann::ordered_json prompt_messages;  // those that both conversations begin with; null or a list
  nlohmann::ordered_json chosen_messages,
      rejected_messages;  // whole conversations; null or lists (checked_messages)
  std::optional<std::array<double, 2>> reference;
};

// Names of the members.
struct PreferenceFields {
  std::string prompt, chosen, rejected;
};

// Throws Error (where = `where`) for an object of none of the forms.
JsonlPreference parse_preference(const nlohmann::ordered_json& line, const PreferenceFields& fields,
                                 const std::string& where);

}  // namespace meshloom::trainer
