#include "trainer/cli/inference_recipe.h"

#include "trainer/cli/recipe_options.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/jsonl/jsonl_files.h"

namespace meshloom::trainer {

TrainerConfig inference_recipe(const Checkpoint& checkpoint, const InferenceOptions& options,
                               const Registries& registries) {
  TrainerConfig config = recipe_of(checkpoint, registries.classes);
  config.kernels.clear();
  apply_modify(config, options.modify, registries.classes);
  const Resolution resolution = resolve(config, options.hardware, registries.devices, registries.classes);
  for (const std::string& note : resolution.notes) say_note(note);
  config.check();
  return config;
}

std::unique_ptr<ChatFormat> chat_format_of(const TrainerConfig& config, const Tokenizer& tokenizer) {
  const auto* jsonl = config.input.as<JsonlFilesConfig>();
  std::unique_ptr<ChatFormat> format =
      chat_format(jsonl ? jsonl->chat_template.value_or("") : "", *config.input->tokenizer, tokenizer, {},
                  !jsonl || jsonl->end_of_text);
  for (const std::string& note : format->notes()) say_note(note);
  return format;
}

std::vector<CLI::Option*> add_engine_options(CLI::App& command, EngineOptions& engine) {
  const auto number = [&](const char* name, std::int64_t& value, std::int64_t least, const char* help) {
    return command.add_option(name, value, help)->check(integer_from(least));
  };
  engine.pooling = Pooling::last;
  static const std::map<std::string, Pooling> kPoolings{
      {"last", Pooling::last}, {"mean", Pooling::mean}, {"none", Pooling::none}};
  return {
      number("--max-length", engine.max_length, 1,
             "Tokens of a prompt and what follows it, at most (as in training)"),
      number(
          "--max-source", engine.max_source, 1,
          "Tokens of a prompt, at most, of a model with an encoder, which reads it apart from the text that "
          "is written (as in training)"),
      number("--max-sequences", engine.max_sequences, 1, "Texts that are written at once; more wait")
          ->capture_default_str(),
      number("--step-tokens", engine.step_tokens, 1,
             "Tokens that one step computes, of all texts together; more make prompts faster and the time "
             "between tokens longer")
          ->capture_default_str(),
      number("--page-size", engine.page_size, 1,
             "Tokens of a page, the unit in which caches are given out and found again")
          ->capture_default_str(),
      number("--pages", engine.pages, 0,
             "Pages of all texts together. With fewer than they need, the last to come are computed again "
             "later; 0 = as many as they need at most")
          ->capture_default_str(),
      number("--draft-tokens", engine.draft_tokens, 0,
             "Guess up to so many tokens of each text, and compute them together; batch-invariant texts stay "
             "the "
             "same. "
             "0 = none")
          ->capture_default_str(),
      command
          .add_option_function<std::string>(
              "--pooling", [&engine](const std::string& name) { engine.pooling = kPoolings.at(name); },
              "What the embedding of a text is: the hidden state of its last token, the mean over all "
              "tokens, or "
              "none, where there are no embeddings")
          ->check(CLI::IsMember({"last", "mean", "none"}))
          ->default_str("last"),
      command.add_flag_function(
          "--batch-invariant,!--no-batch-invariant",
          [&engine](std::int64_t given) { engine.batch_invariant = given > 0; },
          "A text has the same bits whatever else runs, which costs speed with many tokens at once; without "
          "either, on the CPU where its kernels can")};
}

void InferenceOptions::add_to(CLI::App& command) {
  command.add_option("--selector", hardware.selector, kSelectorHelp)->type_name("NAME");
  command.add_option("--device", hardware.device, "BACKEND or BACKEND:INDEX (as in training)");
  command.add_option("--as", hardware.as, "The profile to run as");
  add_modify_option(
      command, modify,
      "MODIFIER{...}: edits the checkpoint's recipe, such as "
      "'Quantize{with=\"BlockQuantizedLinear{format=q8_0}\"}', which stores weights in 8 bits; in order");
}

}  // namespace meshloom::trainer
