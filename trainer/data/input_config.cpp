#include "trainer/data/input_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "hal/error.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/jsonl/jsonl_pairs.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/data/text/text_files.h"

namespace meshloom::trainer {

void TokenizerConfig::add_model_fields(layers::FieldVisitor& v) {
  v("end_of_text", end_of_text,
    {"The token that ends a text; none: the one that the tokenizer's files name."});
  v("eos_token_ids", eos_token_ids,
    {"The ids of the tokens that end generation; []: that of end_of_text.", layers::at_least(0)});
  v("config", config, {"The path of a tokenizer_config.json; none: no such file."});
  v("chat_template", chat_template, {"The path of a Jinja template for messages; none: no template."});
}

void SentencePieceConfig::fields(layers::FieldVisitor& v) {
  v("model", model, {"The path of the .model file."});
  v("begin_of_text", begin_of_text, {"Whether a text begins with the model's <s>."});
  add_model_fields(v);
}

std::vector<TokenizerConfig::File> SentencePieceConfig::files() {
  return {{&model.optional(), "tokenizer.model"},
          {&config, "tokenizer_config.json"},
          {&chat_template, "chat_template.jinja"}};
}

void TokenizerJsonConfig::fields(layers::FieldVisitor& v) {
  v("file", path, {"The path of the tokenizer.json."});
  v("template_tokens", template_tokens,
    {"Whether the tokens of its post-processor, such as begin-of-text, are added to a text."});
  add_model_fields(v);
}

std::vector<TokenizerConfig::File> TokenizerJsonConfig::files() {
  return {{&path.optional(), "tokenizer.json"},
          {&config, "tokenizer_config.json"},
          {&chat_template, "chat_template.jinja"}};
}

std::vector<std::int32_t> ends_of(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ends;
  for (const std::int64_t id : config.eos_token_ids) {
    if (id < 0 || id > INT32_MAX)
      throw Error("input.tokenizer.eos_token_ids", "an id must be in [0, 2^31)", std::to_string(id));
    ends.push_back(static_cast<std::int32_t>(id));
  }
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (ends.empty() && end) ends.push_back(*end);
  return ends;
}

std::string note_of_guess(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!tokenizer.end_is_guessed() || !end || !config.eos_token_ids.empty()) return "";
  return fmt::format(
      "the end-of-text token is guessed from its name: '{}' ({}); --set input.tokenizer.end_of_text=TOKEN "
      "sets another",
      tokenizer.token(*end), *end);
}

void InputConfig::fields(layers::FieldVisitor& v) {
  v("tokenizer", tokenizer, {"Converts text to tokens."});
  v("files", files, {"The files to train on; --data adds to them."});
  v("eval_files", eval_files, {"The files to evaluate on; []: the end of the training data is held out."});
  v("eval_fraction", eval_fraction,
    {"The fraction of the tokens or examples that is held out, from the end.", layers::below_one()});
  v("shuffle", shuffle, {"Whether every epoch has its own order of rows."});
}

void InputConfig::check() const {
  if (!tokenizer) throw Error("input.tokenizer", "must be set", "none");
  if (!(eval_fraction >= 0 && eval_fraction < 1))
    throw Error("input.eval_fraction", "must be in [0, 1)", fmt::format("{}", eval_fraction));
}

Prompt InputConfig::begin(const Tokenizer& tokenizer, std::string_view text) const {
  return {tokenizer.encode(text)};
}

std::vector<std::string> InputConfig::record(const TargetFormat& format) {
  std::vector<std::string> notes;
  if (!tokenizer->has_files() || format.ends.empty()) return notes;
  std::vector<std::int64_t>& ids = tokenizer->eos_token_ids;
  const std::vector<std::int64_t> before = ids;
  for (const std::int32_t end : format.ends)
    if (std::find(ids.begin(), ids.end(), end) == ids.end()) {
      ids.push_back(end);
      if (!before.empty())
        notes.push_back(fmt::format(
            "training targets end with token {}, which is not among the model's eos_token_ids [{}]; it is "
            "added to them, so that generation ends there too",
            end, fmt::join(before, ", ")));
    }
  return notes;
}

void add_input_classes(layers::ClassTable& classes) {
  classes.add<BytesConfig>();
  classes.add<SentencePieceConfig>();
  classes.add<TokenizerJsonConfig>();
  classes.add<TextFilesConfig>();
  classes.add<JsonlFilesConfig>();
  classes.add<JsonlPairsConfig>();
  classes.add<JsonlPromptsConfig>();
}

}  // namespace meshloom::trainer
