// Chat templates: a model's Jinja template that formats a conversation as one text. Rendering gives the same
// text as transformers' apply_chat_template (an immutable sandboxed Jinja2 environment with trim_blocks,
// lstrip_blocks, loop controls and generation blocks); what is not supported is refused when the template is
// parsed. Templates are untrusted: their nesting, steps and output are bounded, and every fault in them is an
// Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::trainer {

struct ChatOptions {
  bool add_generation_prompt = false;
  // "" = the variable is undefined, as when the tokenizer has no such token.
  std::string bos_token, eos_token;
  // An object of further variables by name: other special tokens, tools, documents, enable_thinking, ... They
  // override everything above. `tools` and `documents` are none unless they are set here.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // The tokenizer's added tokens ("<|im_end|>"), which it never splits: no turn is found to end inside of
  // one.
  std::vector<std::string> added_tokens = {};
  // The time of strftime_now(), in seconds since 1970 UTC; none = the current local time. It must be set for
  // texts that have to be the same later.
  std::optional<std::int64_t> now = {};
};

struct RenderedChat {
  std::string text;
  // The byte ranges [first, second) of `text` that the assistant says, including the end of its turn; in
  // order, not empty, and not adjacent.
  std::vector<std::pair<std::size_t, std::size_t>> assistant_ranges;
};

class ChatTemplate {
 public:
  // `source` is UTF-8. Throws Error (where = `where` and the line) for an invalid template, and for what is
  // not supported, which the message names.
  ChatTemplate(std::string source, std::string where);
  // The text of `messages`, an array of objects with `role` and `content`. Throws Error for conversations
  // that the template refuses (raise_exception), for errors while it runs, and when it exceeds its bounds.
  std::string render(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  // The whole conversation with the ranges to train on: the {% generation %} blocks if the template has any,
  // otherwise what each message of the role "assistant" adds after the prompt that precedes it.
  // options.add_generation_prompt is ignored: the text ends with the conversation. Throws Error also when the
  // ranges cannot be determined.
  RenderedChat render_training(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  // Whether the template has a variable of this name.
  bool uses(std::string_view variable) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace meshloom::trainer
