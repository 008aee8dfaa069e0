// How a conversation becomes tokens: as the model's own chat template writes it, or in a built-in format.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/examples.h"
#include "trainer/data/input_config.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // The conversation as it is learned: what the assistant says and the token that ends its turn. `messages` are
  // checked_messages (jsonl_line.h) and end with an assistant's; `tools` may be null. Throws Error (where = `where`).
  virtual Example example(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                          const std::string& where) const = 0;
  // The conversation and the beginning of an answer, which a model goes on from. Throws Error.
  virtual std::vector<std::int32_t> prompt(const nlohmann::ordered_json& messages,
                                           const std::string& where) const = 0;
  // The token that ends an answer, if one does.
  virtual std::optional<std::int32_t> end_of_turn() const = 0;
  // What a user is to be told: an answer that has no end, a format that is not the model's.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual bool built_in() const { return false; }
  // The time that a template was told, where it asks for it.
  virtual std::optional<std::int64_t> time() const { return {}; }
};

// The name of the built-in format, whose markers are plain text and so work with any tokenizer: a message is "<|ROLE|>", a
// line's end, its content, and a line's end; behind an answer stands the end-of-text token. Roles are system, user and
// assistant.
constexpr std::string_view kRolesFormat = "roles";

// The format by `name`: "" = the tokenizer's own template where it has one, else kRolesFormat. `time`: what a template is
// told of it, in seconds since 1970; none = now. `end`: whether answers end in the built-in format. `tokenizer` must outlive
// what this gives. Throws Error for a template that cannot be run.
std::unique_ptr<ChatFormat> chat_format(const std::string& name, const TokenizerConfig& config,
                                        const Tokenizer& tokenizer, std::optional<std::int64_t> time = {},
                                        bool end = true);

// The built-in format as a chat template, for other programs.
std::string roles_template(const Tokenizer& tokenizer, bool end);

// Appends a context and the answer behind it, which is learned, as a model sees them.
void append_turn(const std::string& context, const std::string& answer, const Tokenizer& tokenizer,
                 Example& example);

}  // namespace meshloom::trainer
