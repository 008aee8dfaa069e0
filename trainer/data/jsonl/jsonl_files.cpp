#include "trainer/data/jsonl/jsonl_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "hal/error.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_examples.h"

namespace meshloom::trainer {
namespace {

// Prompts and answers, one after another.
class Turns : public JsonlFormat {
 public:
  Turns(const JsonlFilesConfig& config, const Tokenizer& tokenizer, std::int64_t sequence)
      : config_(config), tokenizer_(tokenizer), sequence_(sequence) {
    if (config.end_of_text && tokenizer.end_of_text()) end_ = tokenizer.end_of_text();
  }

  Example read(const std::string& line, const std::string& where) const override {
    const JsonlLine found = parse_jsonl_line(line, fields_, where);
    if (!found.messages.is_null()) {
      const std::string here = where + ", " + config_.messages;
      return chat().example(found.messages, found.tools, here);
    }
    Example example;
    example.tokens = tokenizer_.begin_of_text();
    const Turn& turn = found.turns.front();
    append_turn(turn.context, turn.answer, tokenizer_, example);
    if (config_.end_of_text) {
      plain_end_ = true;
      example.tokens.push_back(end_ ? *end_ : end_of_answers(tokenizer_));
      example.loss_mask.push_back(1);
    }
    return example;
  }

  TargetFormat target_format() const override {
    TargetFormat form;
    if (plain_end_ && end_) form.ends.push_back(*end_);
    if (!chat_) return form;
    if (const auto end = chat_->end_of_turn(); end && (form.ends.empty() || form.ends.front() != *end))
      form.ends.push_back(*end);
    if (chat_->built_in()) form.chat_template = kRolesFormat;
    form.chat_time = chat_->time();
    return form;
  }
  std::vector<std::string> notes() const override {
    return chat_ ? chat_->notes() : std::vector<std::string>{};
  }

  bool fits(const Example& example) const override {
    return static_cast<std::int64_t>(example.tokens.size()) <= sequence_ + 1;
  }

  void cut(Example& example) const override {
    const auto max_tokens = static_cast<std::size_t>(sequence_ + 1);
    const auto context = static_cast<std::size_t>(
        std::find(example.loss_mask.begin(), example.loss_mask.end(), 1) - example.loss_mask.begin());
    const std::size_t kept = std::min(context, std::max<std::size_t>(tokenizer_.begin_of_text().size(), 1));
    const auto dropped =
        static_cast<std::ptrdiff_t>(std::min(context - kept, example.tokens.size() - max_tokens));
    const auto from = static_cast<std::ptrdiff_t>(kept);
    example.tokens.erase(example.tokens.begin() + from, example.tokens.begin() + from + dropped);
    example.loss_mask.erase(example.loss_mask.begin() + from, example.loss_mask.begin() + from + dropped);
    if (example.tokens.size() > max_tokens) {
      example.tokens.resize(max_tokens);
      example.loss_mask.resize(max_tokens);
    }
  }

  std::string limit() const override { return fmt::format("sequence + 1 = {} tokens", sequence_ + 1); }

 private:
  // Created for the first line with messages, so that a template that cannot be run is no error without such
  // lines.
  const ChatFormat& chat() const {
    std::call_once(once_, [&] {
      chat_ = chat_format(config_.chat_template.value_or(""), *config_.tokenizer, tokenizer_,
                          config_.chat_time, config_.end_of_text);
    });
    return *chat_;
  }

  const JsonlFilesConfig config_;
  const JsonlFields fields_{config_.prompt, config_.completion, config_.messages, config_.text};
  const Tokenizer& tokenizer_;
  std::int64_t sequence_;
  std::optional<std::int32_t> end_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<ChatFormat> chat_;
  mutable std::atomic<bool> plain_end_ = false;  // a line of another form was read
};

}  // namespace

void JsonlFilesConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("prompt", prompt,
    {"The name of the member with the prompt, which is not trained on; \"\": not used.",
     layers::means("member that is the prompt")});
  v("completion", completion,
    {"The name of the member with the completion of the prompt; \"\": not used.",
     layers::means("member that is the completion")});
  v("messages", messages,
    {"The name of the member with a list of messages; those of the assistant are trained on; \"\": not "
     "used."});
  v("text", text, {"The name of the member with a text, which is trained on as a whole; \"\": not used."});
  v("chat_template", chat_template,
    {"How messages are written; none: by the tokenizer's chat template, or as \"roles\" when it has none."});
  v("chat_time", chat_time, {"The time for templates that ask for it, in seconds since 1970; none: now."});
  v("end_of_text", end_of_text,
    {"Whether targets end with the tokenizer's end-of-text token; a template says that itself.",
     layers::means("whether targets end with the end of text")});
  v("pack", pack,
    {"Whether a row holds as many examples as fit; false: one.",
     layers::means("whether examples share rows")});
  v("too_long", too_long,
    {"What happens to an example that is too long: the front of its prompt and then its end are cut, it is "
     "left out, or it is an error.",
     layers::one_of("cut", "skip", "refuse"), layers::means("what happens to long examples")});
}

void JsonlFilesConfig::check() const {
  InputConfig::check();
  check_too_long(too_long);
  if (prompt.empty() != completion.empty())
    throw Error("input", "prompt and completion must both be named, or neither",
                "'" + prompt + "' and '" + completion + "'");
  if (prompt.empty() && messages.empty() && text.empty())
    throw Error("input", "must name the members of at least one form", "none");
}

std::vector<std::string> JsonlFilesConfig::record(const TargetFormat& format) {
  if (!format.chat_template.empty()) chat_template = format.chat_template;
  if (format.chat_time) chat_time = format.chat_time;
  return InputConfig::record(format);
}

void JsonlFilesConfig::resume_from(const InputConfig& before) {
  const auto* same = dynamic_cast<const JsonlFilesConfig*>(&before);
  if (same && !chat_time) chat_time = same->chat_time;
}

std::unique_ptr<Dataset> JsonlFilesConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                                std::int64_t sequence) const {
  return open_jsonl(*this, std::make_shared<Turns>(*this, tokenizer, sequence), too_long, tokenizer,
                    vocabulary, {.sequence = sequence, .pack = pack});
}

}  // namespace meshloom::trainer
