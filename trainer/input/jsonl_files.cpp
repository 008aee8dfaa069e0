#include "trainer/input/jsonl_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "hal/error.h"
#include "trainer/input/jsonl_examples.h"

namespace meshloom::trainer {
namespace {

// A context and the answer behind it, as a model sees them: the context in tokens of its own, unless the
// whole text's begin with just those, then the whole's, whose answer needs no guess about what a tokenizer
// puts in front of a text.
void encode_turn(const Turn& turn, const Tokenizer& tokenizer, Example& example) {
  std::vector<std::int32_t> context = tokenizer.encode_part(turn.context);
  std::vector<std::int32_t> whole = tokenizer.encode_part(turn.context + turn.answer);
  const bool prefix =
      whole.size() >= context.size() && std::equal(context.begin(), context.end(), whole.begin());
  append(example.tokens, context);
  example.learn.resize(example.tokens.size(), 0);
  if (prefix) whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(context.size()));
  append(example.tokens, prefix ? whole : tokenizer.encode_part(turn.answer));
  example.learn.resize(example.tokens.size(), 1);
}

// Prompts and answers behind each other.
class Turns : public JsonlForm {
 public:
  Turns(const JsonlFilesConfig& config, const Tokenizer& tokenizer, std::int64_t sequence)
      : fields_{config.prompt, config.completion, config.messages, config.text},
        tokenizer_(tokenizer),
        sequence_(sequence) {
    if (config.end_of_text) end_ = end_of_answers(tokenizer);
  }

  Example read(const std::string& line, const std::string& where) const override {
    Example example;
    example.tokens = tokenizer_.begin_of_text();
    for (const Turn& turn : parse_jsonl_line(line, fields_, where)) {
      encode_turn(turn, tokenizer_, example);
      if (!end_) continue;
      example.tokens.push_back(*end_);
      example.learn.push_back(1);
    }
    return example;
  }

  bool fits(const Example& example) const override {
    return static_cast<std::int64_t>(example.tokens.size()) <= sequence_ + 1;
  }

  void cut(Example& example) const override {
    const auto most = static_cast<std::size_t>(sequence_ + 1);
    const auto context = static_cast<std::size_t>(std::find(example.learn.begin(), example.learn.end(), 1) -
                                                  example.learn.begin());
    const std::size_t kept = std::min(context, std::max<std::size_t>(tokenizer_.begin_of_text().size(), 1));
    const auto dropped = static_cast<std::ptrdiff_t>(std::min(context - kept, example.tokens.size() - most));
    const auto from = static_cast<std::ptrdiff_t>(kept);
    example.tokens.erase(example.tokens.begin() + from, example.tokens.begin() + from + dropped);
    example.learn.erase(example.learn.begin() + from, example.learn.begin() + from + dropped);
    if (example.tokens.size() > most) {
      example.tokens.resize(most);
      example.learn.resize(most);
    }
  }

  std::string most() const override { return fmt::format("sequence + 1 = {} tokens", sequence_ + 1); }

 private:
  JsonlFields fields_;
  const Tokenizer& tokenizer_;
  std::int64_t sequence_;
  std::optional<std::int32_t> end_;
};

}  // namespace

void JsonlFilesConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("prompt", prompt);
  v("completion", completion);
  v("messages", messages);
  v("text", text);
  v("end_of_text", end_of_text);
  v("pack", pack);
  v("too_long", too_long);
}

void JsonlFilesConfig::check() const {
  InputConfig::check();
  check_too_long(too_long);
  if (prompt.empty() != completion.empty())
    throw Error("input", "prompt and completion must both be named, or neither",
                "'" + prompt + "' and '" + completion + "'");
  if (prompt.empty() && messages.empty() && text.empty())
    throw Error("input", "must name the members of one form at least", "none");
}

std::unique_ptr<Data> JsonlFilesConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                             std::int64_t sequence) const {
  return open_jsonl(*this, std::make_shared<Turns>(*this, tokenizer, sequence), too_long, tokenizer,
                    vocabulary, {.sequence = sequence, .pack = pack});
}

}  // namespace meshloom::trainer
