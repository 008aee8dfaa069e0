#include "trainer/data/jsonl/jsonl_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "hal/error.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_examples.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Prompts and answers, one after another.
class Turns : public JsonlFormat {
 public:
  Turns(const JsonlFilesConfig& config, const Tokenizer& tokenizer, std::int64_t sequence)
      : config_(config), tokenizer_(tokenizer), sequence_(sequence) {
    if (config.end_of_text && tokenizer.end_of_text()) end_ = tokenizer.end_of_text();
  }

  Example read(const std::string& line, const std::string& where) const override {
    const JsonlLine found = parse_jsonl_line(line, fields_, where);
    (found.preference ? preferences_ : others_) = true;
    if (preferences_ && others_)
      throw Error(
          where, "all lines of a run's data must be preferences, or none of them",
          found.preference ? "a preference behind other examples" : "another example behind preferences");
    if (found.preference) {
      if (!found.preference->reference) without_reference_ = true;
      return preference(*found.preference, found.tools, where);
    }
    if (!found.messages.is_null()) {
      const std::string here = where + ", " + config_.messages;
      return chat().example(found.messages, found.tools, here);
    }
    return of_turn(found.turns.front());
  }

  bool has_preferences() const override { return preferences_; }
  bool has_reference() const override { return preferences_ && !without_reference_; }

  TargetFormat target_format() const override {
    return target_format_of(chat_.get(), plain_end_ ? end_ : std::nullopt);
  }
  std::vector<std::string> notes() const override {
    return chat_ ? chat_->notes() : std::vector<std::string>{};
  }

  bool fits(const Example& example) const override { return example.positions() <= sequence_; }

  void cut(Example& example) const override {
    if (example.rejected > 0) return cut_preference(example);
    const auto max_tokens = static_cast<std::size_t>(sequence_ + 1);
    const std::size_t context = context_of(example);
    const std::size_t kept = std::min(context, std::max<std::size_t>(tokenizer_.begin_of_text().size(), 1));
    erase_front(example, kept, std::min(context - kept, example.tokens.size() - max_tokens));
    if (example.tokens.size() > max_tokens) {
      example.tokens.resize(max_tokens);
      example.loss_mask.resize(max_tokens);
    }
  }

  std::string limit() const override {
    return preferences_
               ? fmt::format("sequence + 2 = {} tokens in both answers with their prompts", sequence_ + 2)
               : fmt::format("sequence + 1 = {} tokens", sequence_ + 1);
  }

 private:
  Example of_turn(const Turn& turn) const {
    Example example;
    example.tokens = tokenizer_.begin_of_text();
    append_turn(turn.context, turn.answer, tokenizer_, example);
    if (config_.end_of_text) {
      plain_end_ = true;
      example.tokens.push_back(end_ ? *end_ : end_of_answers(tokenizer_));
      example.loss_mask.push_back(1);
    }
    return example;
  }

  // A conversation of which only what comes after the prompt is trained on.
  Example of_answer(const OrderedJson& messages, const OrderedJson& prompt, const OrderedJson& tools,
                    const std::string& where) const {
    Example example = chat().example(messages, tools, where);
    const std::vector<std::int32_t> given = chat().prompt(prompt, tools, where);
    const auto same =
        std::mismatch(given.begin(), given.end(), example.tokens.begin(), example.tokens.end()).first;
    std::fill_n(example.loss_mask.begin(), same - given.begin(), 0);
    return example;
  }

  Example preference(const JsonlPreference& line, const OrderedJson& tools, const std::string& where) const {
    Example both, rejected;
    if (line.chosen_messages.is_null()) {
      both = of_turn({line.prompt, line.chosen});
      rejected = of_turn({line.prompt, line.rejected});
    } else {
      both = of_answer(line.chosen_messages, line.prompt_messages, tools, where + ", " + config_.chosen);
      rejected =
          of_answer(line.rejected_messages, line.prompt_messages, tools, where + ", " + config_.rejected);
    }
    for (const auto& [example, name] :
         {std::pair(&both, &config_.chosen), std::pair(&rejected, &config_.rejected)})
      if (example->tokens.size() < 2 ||
          std::count(example->loss_mask.begin() + 1, example->loss_mask.end(), 1) == 0)
        throw Error(where, shown(*name) + " must have at least one token, behind at least one of the prompt",
                    "none");
    add_rejected(rejected, both);
    both.reference = line.reference;
    return both;
  }

  // Makes a preference of the chosen answer's document.
  static void add_rejected(const Example& rejected, Example& chosen) {
    chosen.rejected = chosen.tokens.size();
    append(chosen.tokens, rejected.tokens);
    chosen.loss_mask.insert(chosen.loss_mask.end(), rejected.loss_mask.begin(), rejected.loss_mask.end());
  }

  // The front of the prompt is removed, as much of both, and if that is not enough, the ends of the answers, of the longer one first.
  void cut_preference(Example& example) const {
    const auto begin = example.tokens.begin();
    const auto middle = static_cast<std::ptrdiff_t>(example.rejected);
    std::array<Example, 2> halves;
    halves[0].tokens.assign(begin, begin + middle);
    halves[1].tokens.assign(begin + middle, example.tokens.end());
    halves[0].loss_mask.assign(example.loss_mask.begin(), example.loss_mask.begin() + middle);
    halves[1].loss_mask.assign(example.loss_mask.begin() + middle, example.loss_mask.end());
    const std::size_t begins = std::max<std::size_t>(tokenizer_.begin_of_text().size(), 1);
    std::size_t front = static_cast<std::size_t>(example.positions() - sequence_ + 1) / 2;
    for (const Example& half : halves) {
      const std::size_t context = context_of(half);
      front = std::min(front, context - std::min(context, begins));
    }
    for (Example& half : halves) erase_front(half, std::min(context_of(half), begins), front);
    while (halves[0].positions() + halves[1].positions() > sequence_) {
      Example& longer = halves[0].tokens.size() > halves[1].tokens.size() ? halves[0] : halves[1];
      longer.tokens.pop_back();
      longer.loss_mask.pop_back();
    }
    example = std::move(halves[0]);  // one with log-probabilities of a reference model is never cut
    add_rejected(halves[1], example);
  }

  static std::size_t context_of(const Example& example) {
    return static_cast<std::size_t>(std::find(example.loss_mask.begin(), example.loss_mask.end(), 1) -
                                    example.loss_mask.begin());
  }

  // Removes `count` tokens behind the first `kept`.
  static void erase_front(Example& example, std::size_t kept, std::size_t count) {
    const auto from = static_cast<std::ptrdiff_t>(kept), dropped = static_cast<std::ptrdiff_t>(count);
    example.tokens.erase(example.tokens.begin() + from, example.tokens.begin() + from + dropped);
    example.loss_mask.erase(example.loss_mask.begin() + from, example.loss_mask.begin() + from + dropped);
  }

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
  const JsonlFields fields_{config_.prompt, config_.completion, config_.messages,
                            config_.text,   config_.chosen,     config_.rejected};
  const Tokenizer& tokenizer_;
  std::int64_t sequence_;
  std::optional<std::int32_t> end_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<ChatFormat> chat_;
  mutable std::atomic<bool> plain_end_ = false;                     // a line of another form was read
  mutable std::atomic<bool> preferences_ = false, others_ = false;  // lines that were read
  mutable std::atomic<bool> without_reference_ = false;             // a preference among them
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
  v("chosen", chosen,
    {"The name of the member with the preferred one of two answers, for a loss of preferences; \"\": not "
     "used."});
  v("rejected", rejected, {"The name of the member with the other answer; \"\": not used."});
  add_chat_fields(v);
  v("end_of_text", end_of_text,
    {"Whether targets end with the tokenizer's end-of-text token; a template says that itself.",
     layers::means("whether targets end with the end of text")});
  v("pack", pack,
    {"Whether a row holds as many examples as fit; false: one.",
     layers::means("whether examples share rows")});
  v("preferences_per_row", preferences_per_row,
    {"The preferences that share a row, at most; the loss has some small calls for each.",
     layers::at_least(1)});
  v("too_long", too_long,
    {"What happens to an example that is too long: the front of its prompt and then its end are cut, it is "
     "left out, or it is an error.",
     layers::one_of("cut", "skip", "refuse"), layers::means("what happens to long examples")});
}

void JsonlFilesConfig::check() const {
  InputConfig::check();
  check_too_long(too_long);
  if (preferences_per_row < 1)
    throw Error("input.preferences_per_row", "must be at least 1", std::to_string(preferences_per_row));
  if (prompt.empty() != completion.empty())
    throw Error("input", "prompt and completion must both be named, or neither",
                "'" + prompt + "' and '" + completion + "'");
  if (chosen.empty() != rejected.empty())
    throw Error("input", "chosen and rejected must both be named, or neither",
                "'" + chosen + "' and '" + rejected + "'");
  if (prompt.empty() && messages.empty() && text.empty() && chosen.empty())
    throw Error("input", "must name the members of at least one form", "none");
}

std::unique_ptr<Dataset> JsonlFilesConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                                std::int64_t sequence) const {
  return open_jsonl(*this, format(tokenizer, sequence), too_long, tokenizer, vocabulary,
                    {.sequence = sequence, .pack = pack, .preferences_per_row = preferences_per_row});
}

std::shared_ptr<const JsonlFormat> JsonlFilesConfig::format(const Tokenizer& tokenizer,
                                                            std::int64_t sequence) const {
  return std::make_shared<Turns>(*this, tokenizer, sequence);
}

}  // namespace meshloom::trainer
