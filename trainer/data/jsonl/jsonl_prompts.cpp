#include "trainer/data/jsonl/jsonl_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_examples.h"
#include "trainer/data/jsonl/jsonl_line.h"
#include "trainer/data/text/find_files.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

class PromptFormat : public JsonlFormat {
 public:
  PromptFormat(const JsonlPromptsConfig& config, const Tokenizer& tokenizer, std::int64_t max_tokens)
      : config_(config), tokenizer_(tokenizer), max_tokens_(max_tokens) {}

  Example read(const std::string& line, const std::string& where) const override {
    const OrderedJson json = line_object(line, where);
    const auto prompt = json.find(config_.prompt);
    if (prompt == json.end())
      throw Error(where, "a line must have a member " + shown(config_.prompt), shown_json(json));
    Example example;
    if (prompt->is_string()) {
      texts_ = true;
      example.tokens = tokenizer_.begin_of_text();
      append(example.tokens, tokenizer_.encode_part(prompt->get<std::string>()));
    } else {
      example.tokens = of_messages(*prompt, json, where + ", " + config_.prompt);
    }
    example.loss_mask.resize(example.tokens.size(), 0);
    return example;
  }

  std::size_t min_tokens() const override { return 1; }
  bool fits(const Example& example) const override {
    return static_cast<std::int64_t>(example.tokens.size()) <= max_tokens_;
  }
  void cut(Example& example) const override {
    const auto kept = static_cast<std::ptrdiff_t>(
        std::min<std::size_t>(tokenizer_.begin_of_text().size(), static_cast<std::size_t>(max_tokens_)));
    const auto more = static_cast<std::ptrdiff_t>(example.tokens.size()) - max_tokens_;
    example.tokens.erase(example.tokens.begin() + kept, example.tokens.begin() + kept + more);
    example.loss_mask.resize(example.tokens.size());
  }
  std::string limit() const override {
    return fmt::format("sequence - max_completion_tokens = {} tokens", max_tokens_);
  }

  TargetFormat target_format() const override {
    return target_format_of(chat_.get(), texts_ ? tokenizer_.end_of_text() : std::nullopt);
  }
  std::vector<std::string> notes() const override {
    return chat_ ? chat_->notes() : std::vector<std::string>{};
  }

 private:
  std::vector<std::int32_t> of_messages(const OrderedJson& prompt, const OrderedJson& line,
                                        const std::string& where) const {
    if (!prompt.is_array()) throw Error(where, "must be a text or a list of messages", shown_json(prompt));
    const OrderedJson messages = checked_messages(prompt, where);
    if (const std::string role = messages.back()["role"]; role == "assistant")
      throw Error(where, "the last message must not be an assistant's, which the model writes", shown(role));
    // Created for the first line with messages, so that a template that cannot be run is no error without such lines.
    std::call_once(once_, [&] {
      chat_ = chat_format(config_.chat_template.value_or(""), *config_.tokenizer, tokenizer_,
                          config_.chat_time, tokenizer_.end_of_text().has_value());
    });
    const auto tools = line.find("tools");
    return chat_->prompt(messages, tools == line.end() ? OrderedJson() : *tools, where);
  }

  const JsonlPromptsConfig config_;
  const Tokenizer& tokenizer_;
  std::int64_t max_tokens_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<ChatFormat> chat_;
  mutable std::atomic<bool> texts_ = false;  // a prompt that is a text was read
};

// What an epoch has, of which a run writes the contents itself.
class UnwrittenRows : public Batches {
 public:
  explicit UnwrittenRows(std::int64_t count) : count_(count) {}
  std::int64_t rows_per_epoch() const override { return count_; }
  Batch rows(std::int64_t, std::int64_t, std::int64_t) const override {
    throw Error("data", "the answers to prompts are written while `meshloom train --reward` trains");
  }

 private:
  std::int64_t count_;
};

class PromptData : public Dataset {
 public:
  PromptData(std::shared_ptr<const PromptFormat> format, const JsonlPromptsConfig& config,
             std::int64_t vocabulary)
      : format_(std::move(format)), completions_(config.completions_per_prompt) {
    const auto read = [&](const std::vector<std::string>& names) {
      const FoundFiles found = find_files(names);
      check_files(found.files);
      notes_.insert(notes_.end(), found.notes.begin(), found.notes.end());
      return std::make_unique<JsonlExamples>(format_, config.too_long, vocabulary, found.files);
    };
    all_ = read(config.files);
    if (!config.eval_files.empty()) held_ = read(config.eval_files);
    std::tie(train_, eval_) = split(*all_, held_.get(), config.eval_fraction);
    for (const auto& [number, what] :
         {std::pair(all_->cut() + (held_ ? held_->cut() : 0), "were cut"),
          std::pair(all_->skipped() + (held_ ? held_->skipped() : 0), "were left out")})
      if (number > 0)
        notes_.push_back(
            fmt::format("{} of the prompts had more than {} and {}", number, format_->limit(), what));
    for (std::string& note : format_->notes()) notes_.push_back(std::move(note));
  }

  std::int64_t train_tokens() const override { return train_.tokens(); }
  std::int64_t eval_tokens() const override { return eval_.tokens(); }
  std::uint64_t fingerprint() const override { return train_.fingerprint(); }
  std::unique_ptr<Batches> train(std::int64_t, std::uint64_t) const override {
    return std::make_unique<UnwrittenRows>(train_.size() * completions_);
  }
  std::unique_ptr<Batches> eval() const override { return nullptr; }
  // The first held-out prompt.
  Prompt prompt(std::int64_t max_tokens) const override {
    std::vector<std::int32_t> tokens = example(eval_.size() > 0 ? train_.size() : 0).tokens;
    if (const auto size = static_cast<std::int64_t>(tokens.size()); size > max_tokens)
      tokens.erase(tokens.begin(), tokens.begin() + (size - max_tokens));
    return {std::move(tokens)};
  }
  TargetFormat target_format() const override { return format_->target_format(); }
  bool has_prompts() const override { return true; }
  std::int64_t examples() const override { return train_.size(); }
  std::int64_t eval_prompts() const override { return eval_.size(); }
  Example example(std::int64_t index) const override {
    const auto [prompts, at] = place_of(index);
    return prompts->read(at);
  }
  std::string line(std::int64_t index) const override {
    const auto [prompts, at] = place_of(index);
    return prompts->line(at);
  }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  // Where a prompt is read.
  std::pair<const JsonlExamples*, std::int64_t> place_of(std::int64_t index) const {
    if (!held_ || index < train_.size()) return {all_.get(), index};
    return {held_.get(), index - train_.size()};
  }

  std::shared_ptr<const PromptFormat> format_;
  std::int64_t completions_;
  std::unique_ptr<JsonlExamples> all_, held_;  // the second where there are files to evaluate on
  ExampleRange train_, eval_;
  std::vector<std::string> notes_;
};

}  // namespace

void JsonlPromptsConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("prompt", prompt,
    {"The name of the member with the prompt, a text or a list of messages.",
     layers::means("member that is the prompt")});
  add_chat_fields(v);
  v("completions_per_prompt", completions_per_prompt,
    {"The answers to a prompt that are compared with each other; the batch must be a multiple of them.",
     layers::at_least(2)});
  v("max_completion_tokens", max_completion_tokens,
    {"The tokens of an answer, at most; 0: half of the sequence.", layers::at_least(0)});
  v("scale_advantages", scale_advantages,
    {"Whether advantages are divided by the standard deviation of the prompt's rewards."});
  v("mask_truncated", mask_truncated, {"Whether answers that did not come to an end are not trained on."});
  v("max_sequences", max_sequences, {"The answers that are written at once, at most.", layers::at_least(1)});
  v("steps_per_generation", steps_per_generation,
    {"Steps whose answers are written together, in front of the first of them.", layers::at_least(1)});
  v("num_iterations", num_iterations,
    {"How often each answer is learned from: the steps of a generation are repeated.", layers::at_least(1)});
  v("eval_temperature", eval_temperature,
    {"The temperature at which held-out prompts are answered; 0: the most probable token is taken.",
     layers::at_least(0)});
  v("too_long", too_long,
    {"What happens to a prompt that leaves no room for an answer: its front is cut, it is left out, or it is "
     "an "
     "error.",
     layers::one_of("cut", "skip", "refuse"), layers::means("what happens to long prompts")});
}

void JsonlPromptsConfig::check() const {
  InputConfig::check();
  check_too_long(too_long);
  if (prompt.empty()) throw Error("input.prompt", "must name a member", "''");
  const auto require = [](const char* field, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw Error(fmt::format("input.{}", field), fmt::format("must be at least {}", least),
                  std::to_string(value));
  };
  require("completions_per_prompt", completions_per_prompt, 2);
  require("max_completion_tokens", max_completion_tokens, 0);
  require("max_sequences", max_sequences, 1);
  require("steps_per_generation", steps_per_generation, 1);
  require("num_iterations", num_iterations, 1);
  if (!(eval_temperature >= 0))
    throw Error("input.eval_temperature", "must be at least 0", fmt::format("{}", eval_temperature));
}

std::int64_t JsonlPromptsConfig::completion_tokens(std::int64_t sequence) const {
  if (max_completion_tokens >= sequence)
    throw Error("input.max_completion_tokens", fmt::format("must be below the sequence, {}", sequence),
                std::to_string(max_completion_tokens));
  return max_completion_tokens > 0 ? max_completion_tokens : std::max<std::int64_t>(sequence / 2, 1);
}

std::unique_ptr<Dataset> JsonlPromptsConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                                  std::int64_t sequence) const {
  check_vocabulary(tokenizer, vocabulary);
  return std::make_unique<PromptData>(
      std::make_shared<PromptFormat>(*this, tokenizer, sequence - completion_tokens(sequence)), *this,
      vocabulary);
}

}  // namespace meshloom::trainer
