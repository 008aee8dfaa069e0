// Chat templates: the Jinja text that comes with a model and says how a conversation is written as one text.
// What runs here equals transformers' apply_chat_template (an immutable sandboxed Jinja2 environment with
// trim_blocks, lstrip_blocks, loop controls and generation blocks); what is not built is refused when the
// template is read. A template comes from outside: its nesting, steps, and output are bounded, and every
// fault in it is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::trainer {

struct ChatOptions {
  bool add_generation_prompt = false;
  // Empty: the template finds the name undefined, as where the tokenizer has no such token.
  std::string bos_token, eos_token;
  // An object of further variables by name: other special tokens, tools, documents, enable_thinking, ... They
  // win over everything above. `tools` and `documents` are none unless they stand here.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // What the tokenizer never splits ("<|im_end|>", its added tokens): no end of a turn is told to lie inside
  // one.
  std::vector<std::string> added_tokens = {};
  // What strftime_now() writes, in seconds since 1970 UTC; without it the clock's present local time. Rows
  // that must be the same tomorrow want it set.
  std::optional<std::int64_t> now = {};
};

struct RenderedChat {
  std::string text;
  // Byte ranges [first, second) of `text` that the assistant says, its end of turn included; in order, none
  // empty, none touching the next.
  std::vector<std::pair<std::size_t, std::size_t>> learned;
};

class ChatTemplate {
 public:
  // `source` is UTF-8. Throws Error (where = `where` and the line) for what is no Jinja template and for what
  // cannot be run here, which it names.
  ChatTemplate(std::string source, std::string where);
  // The text of `messages`, an array of objects with `role` and `content`. Throws Error for what the template
  // refuses (raise_exception), for a fault in running it, and where it exceeds its bounds.
  std::string render(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  // The whole conversation and what of it is to be learned: the {% generation %} blocks where the template
  // has any, else what each message of the role "assistant" adds behind the prompt that precedes it.
  // add_generation_prompt is not asked for: the text ends where the conversation does. Throws Error too where
  // that cannot be told.
  RenderedChat render_training(const nlohmann::ordered_json& messages, const ChatOptions& options) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace meshloom::trainer
