#include "trainer/run/text_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

namespace meshloom::trainer {
namespace {

constexpr std::int64_t kPrompt = 32;  // tokens

}  // namespace

TextSample::TextSample(const TrainerConfig& config, const Tokenizer& tokenizer, const Dataset& data,
                       std::int64_t tokens)
    : config_(config),
      tokenizer_(tokenizer),
      tokens_(tokens),
      sequence_(sequence(config.sequence, tokens)),
      prompt_(data.prompt(std::min(kPrompt, std::max<std::int64_t>(sequence_ / 2, 1)))) {}

std::int64_t TextSample::sequence(std::int64_t row, std::int64_t tokens) {
  return std::min(row, kPrompt + tokens);
}

std::string TextSample::write(Generator& generator, const std::function<bool()>& stopped) const {
  const std::vector<std::int32_t> ends = ends_of(*config_.input->tokenizer, tokenizer_);
  const auto is_end = [&](std::int32_t id) { return std::find(ends.begin(), ends.end(), id) != ends.end(); };
  const std::vector<std::int32_t> text = generator.generate(
      prompt_, tokens_, {.temperature = 0.7, .seed = static_cast<std::uint64_t>(config_.seed)},
      [&](std::int32_t id) { return !is_end(id) && !(stopped && stopped()); });
  const bool has_source = !prompt_.source.empty();
  const auto text_of = [&](std::span<const std::int32_t> ids) {  // without the end-of-text token
    if (!ids.empty() && is_end(ids.back())) ids = ids.first(ids.size() - 1);
    return tokenizer_.decode(ids);
  };
  return fmt::format("sample (prompt | {}):\n{}|{}", has_source ? "completion" : "continuation",
                     text_of(has_source ? prompt_.source : prompt_.tokens),
                     text_of(std::span(text).subspan(prompt_.tokens.size())));
}

}  // namespace meshloom::trainer
