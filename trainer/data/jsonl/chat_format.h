// Formats a conversation as tokens, with the model's own chat template or in a built-in format.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/examples.h"
#include "trainer/data/input_config.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // The conversation as an example, whose targets are what the assistant says and the token that ends its
  // turn. `messages` are checked_messages (jsonl_line.h) and end with an assistant's; `tools` may be null.
  // Throws Error (where = `where`).
  virtual Example example(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                          const std::string& where) const = 0;
  // The conversation and the beginning of an answer, which a model continues; `tools` may be null. Throws Error.
  virtual std::vector<std::int32_t> prompt(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           const std::string& where) const = 0;
  // The token that ends an answer, if there is one.
  virtual std::optional<std::int32_t> end_of_turn() const = 0;
  // What a user should know: that answers have no end, that the format is not the model's own.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual bool built_in() const { return false; }
  // Whether the format says which tools there are, and the text of its template; "" = the built-in format.
  virtual bool takes_tools() const { return false; }
  virtual std::string_view template_text() const { return {}; }
  // The time that the template was given, where it asks for it.
  virtual std::optional<std::int64_t> time() const { return {}; }
};

// The name of the built-in format, whose markers are plain text and therefore work with any tokenizer: a
// message is "<|ROLE|>", a newline, its content, and a newline; an answer ends with the end-of-text token
// instead. Roles are system, user and assistant.
constexpr std::string_view kRolesFormat = "roles";

// The format with this name; "" = the tokenizer's own template if it has one, else kRolesFormat. `time` is
// the time that a template is given, in seconds since 1970; none = now. `end` says whether answers in the
// built-in format end with the end-of-text token. `tokenizer` must outlive what this returns. Throws Error
// for a template that cannot be run.
std::unique_ptr<ChatFormat> chat_format(const std::string& name, const TokenizerConfig& config,
                                        const Tokenizer& tokenizer, std::optional<std::int64_t> time = {},
                                        bool end = true);

// The built-in format as a chat template, for other programs.
std::string roles_template(const Tokenizer& tokenizer, bool end);

// How targets end: with `plain_end`, where some are of no conversation, and as the format says that was used; nullptr = none was.
TargetFormat target_format_of(const ChatFormat* chat, std::optional<std::int32_t> plain_end);

// Appends the tokens of a context and of the answer after it, which is trained on, to the example.
void append_turn(const std::string& context, const std::string& answer, const Tokenizer& tokenizer,
                 Example& example);

}  // namespace meshloom::trainer
