#include "trainer/data/jsonl/jsonl_pairs.h"

#include <fmt/format.h>

#include "hal/error.h"
#include "trainer/data/jsonl/jsonl_examples.h"
#include "trainer/data/jsonl/jsonl_line.h"

namespace meshloom::trainer {
namespace {

class Pairs : public JsonlFormat {
 public:
  Pairs(const JsonlPairsConfig& config, const Tokenizer& tokenizer, std::int64_t sequence)
      : config_(config), tokenizer_(tokenizer), sequence_(sequence), source_(config.source(sequence)) {
    if (config.end_of_text) end_ = end_of_answers(tokenizer);
  }

  Example read(const std::string& line, const std::string& where) const override {
    const Turn pair =
        parse_jsonl_line(line, {config_.prompt, config_.completion, "", "", "", ""}, where).turns.front();
    Prompt prompt = config_.begin(tokenizer_, pair.context);
    if (prompt.source.empty()) throw Error(where, "a prompt must have at least one token", "none");
    Example example{std::move(prompt.tokens), {}, std::move(prompt.source)};
    example.loss_mask.assign(example.tokens.size(), 0);
    append(example.tokens, tokenizer_.encode_part(pair.answer));
    if (end_) example.tokens.push_back(*end_);
    example.loss_mask.resize(example.tokens.size(), 1);
    return example;
  }

  bool fits(const Example& example) const override {
    return static_cast<std::int64_t>(example.tokens.size()) <= sequence_ + 1 &&
           static_cast<std::int64_t>(example.source.size()) <= source_;
  }

  void cut(Example& example) const override {
    const auto max_tokens = static_cast<std::size_t>(sequence_ + 1),
               source = static_cast<std::size_t>(source_);
    if (example.tokens.size() > max_tokens) {
      example.tokens.resize(max_tokens);
      example.loss_mask.resize(max_tokens);
    }
    if (example.source.size() > source) {
      example.source.resize(source);
      if (end_) example.source.back() = *end_;
    }
  }

  TargetFormat target_format() const override {
    return end_ ? TargetFormat{.ends = {*end_}} : TargetFormat{};
  }

  std::string limit() const override {
    return fmt::format("{} tokens in the prompt or sequence + 1 = {} in the completion", source_,
                       sequence_ + 1);
  }

 private:
  const JsonlPairsConfig config_;
  const Tokenizer& tokenizer_;
  std::int64_t sequence_, source_;
  std::optional<std::int32_t> end_;
};

}  // namespace

void JsonlPairsConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("prompt", prompt,
    {"The name of the member that the encoder reads.", layers::means("member that is the prompt")});
  v("completion", completion,
    {"The name of the member that the decoder is trained to write.",
     layers::means("member that is the completion")});
  v("source_sequence", source_sequence,
    {"Tokens that a row has for prompts; none: as many as the run's sequence.", layers::at_least(1)});
  v("end_of_text", end_of_text,
    {"Whether prompts and completions end with the tokenizer's end-of-text token.",
     layers::means("whether targets end with the end of text")});
  v("pack", pack,
    {"Whether a row holds as many pairs as fit; false: one.", layers::means("whether examples share rows")});
  v("too_long", too_long,
    {"What happens to a pair that is too long: its end is cut, it is left out, or it is an error.",
     layers::one_of("cut", "skip", "refuse"), layers::means("what happens to long examples")});
}

void JsonlPairsConfig::check() const {
  InputConfig::check();
  check_too_long(too_long);
  if (prompt.empty() || completion.empty())
    throw Error("input", "prompt and completion must both be named",
                "'" + prompt + "' and '" + completion + "'");
  if (source_sequence && *source_sequence < 1)
    throw Error("input.source_sequence", "must be at least 1", std::to_string(*source_sequence));
}

Prompt JsonlPairsConfig::begin(const Tokenizer& tokenizer, std::string_view text) const {
  Prompt prompt{tokenizer.begin_of_text(), tokenizer.encode(text)};
  if (end_of_text) prompt.source.push_back(end_of_answers(tokenizer));
  if (!prompt.tokens.empty()) return prompt;
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!end)
    throw Error("tokenizer " + tokenizer.name(),
                "must have a begin-of-text or end-of-text token, with which completions begin; --set "
                "input.tokenizer.end_of_text=TOKEN names one",
                "none");
  prompt.tokens = {*end};
  return prompt;
}

std::unique_ptr<Dataset> JsonlPairsConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                                std::int64_t sequence) const {
  return open_jsonl(*this, std::make_shared<Pairs>(*this, tokenizer, sequence), too_long, tokenizer,
                    vocabulary, {.sequence = sequence, .pack = pack, .source = source(sequence)});
}

}  // namespace meshloom::trainer
