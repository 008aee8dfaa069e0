// Finds what the assistant says in a rendered conversation by rendering parts of it, for templates without
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

// Sorts the ranges, joins adjacent and overlapping ones, and removes empty ones.
Ranges joined_ranges(Ranges ranges);

// Renders a conversation, with or without the prompt for an answer at the end.
using Render = std::function<std::string(const nlohmann::ordered_json& messages, bool prompt)>;

// For assistant message i let P be messages[..i] rendered with the prompt, and Q be messages[..i] and message
// i rendered without.
//   1. If Q starts with P and the whole text starts with Q: the range is what Q has after P.
//   2. Otherwise the content of the message is replaced by a text that occurs nowhere else, in Q and in the whole conversation.
//      This shows where the content is and what of the message surrounds it.
//      The turn starts after P if the whole text starts with P. If the two differ after the questions, it starts where they
//      begin to differ, but never inside one of `added_tokens` ("<think>" in the prompt, "</think>" in earlier answers).
//      Otherwise it starts with what Q has between P and the content, which must also precede the content in the whole text;
//      or at the content, if P extends beyond it.
//      The turn ends with what Q has after the content. If more turns follow and the whole text differs there, it ends with
//      the common part of both, but never inside one of `added_tokens`.
// Throws Error naming the message when neither way works.
RenderedChat assistant_ranges_by_prefixes(const nlohmann::ordered_json& messages, const Render& render,
                                          const std::vector<std::string>& added_tokens,
                                          const std::string& where);

}  // namespace meshloom::trainer::jinja
