// What of a rendered conversation the assistant says, told by rendering parts of it: for templates without
// generation blocks.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/chat/chat_template.h"

namespace meshloom::trainer::jinja {

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

// In order, those that touch as one, without empty ones.
Ranges joined_ranges(Ranges ranges);

// The text of a conversation, with the prompt for an answer behind it or without.
using Render = std::function<std::string(const nlohmann::ordered_json& messages, bool prompt)>;

// For assistant message i, with P = messages[..i] with the prompt and Q = messages[..i] and it:
//   1. P begins Q, and Q begins the whole text: what Q has behind P.
//   2. Else its content is replaced by a text that stands nowhere else, in Q and in the whole conversation.
//   That shows
//      where the content is and what of the message stands around it.
//      The turn starts behind P where the whole text has P; where the two part behind the questions, between
//      `added_tokens` ("<think>" in the prompt, "</think>" in earlier answers); else with what Q has between
//      P and the content, which must stand before the content in the whole text too; at the content if P goes
//      beyond it. The turn ends with what Q has behind the content; where more turns follow and that is
//      another there, with what both have, between `added_tokens`.
// Throws Error naming the message where neither tells.
RenderedChat assistant_ranges_by_prefixes(const nlohmann::ordered_json& messages, const Render& render,
                                          const std::vector<std::string>& added_tokens,
                                          const std::string& where);

}  // namespace meshloom::trainer::jinja
