#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/integer.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/jsonl/jsonl_line.h"
#include "trainer/data/text/hub_name.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/generator.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

struct GenerateOptions {
  std::string checkpoint, prompt;
  std::int64_t tokens = 200, sequence = 0;
  SamplerOptions sampler;
  HardwareRequest hardware;
  bool json = false, chat = false;
};

// Standard input to its end, without the line's end that a shell puts there.
std::string standard_input() {
  std::string text;
  char block[1 << 14];
  while (const std::size_t got = std::fread(block, 1, sizeof block, stdin)) text.append(block, got);
  if (std::ferror(stdin)) throw Error("--prompt -", "standard input must be readable", std::strerror(errno));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// A list of messages, or else the text as what one user says.
nlohmann::ordered_json messages_of(const std::string& prompt) {
  constexpr int kDepth = 32;
  if (prompt.find_first_not_of(" \t\r\n") != std::string::npos &&
      prompt[prompt.find_first_not_of(" \t\r\n")] == '[')
    if (nlohmann::ordered_json::accept(prompt))
      if (auto list = parse_ordered_json(prompt, "--prompt", "the messages", kDepth);
          !list.empty() && list[0].is_object())
        return checked_messages(std::move(list), "--prompt");
  return nlohmann::ordered_json::array({{{"role", "user"}, {"content", prompt}}});
}

struct Asked {
  Prompt prompt;
  std::vector<std::int32_t> ends;  // any of them is the last token
};

Asked ask(const GenerateOptions& options, const std::string& text, const TrainerConfig& config,
          const Tokenizer& tokenizer) {
  const TokenizerConfig& tokens = *config.input->tokenizer;
  Asked asked{{}, ends_of(tokens, tokenizer)};
  if (const std::string note = note_of_guess(tokens, tokenizer); !note.empty()) say_note(note);
  if (!options.chat) {
    asked.prompt = config.input->begin(tokenizer, text);
    return asked;
  }
  if (config.input->source(config.sequence) > 0)
    throw Error("--chat", "needs a model that goes on from a conversation", "one with an encoder");
  const auto* jsonl = config.input.as<JsonlFilesConfig>();
  const std::unique_ptr<ChatFormat> format = chat_format(jsonl ? jsonl->chat_template.value_or("") : "",
                                                         tokens, tokenizer, {}, !jsonl || jsonl->end_of_text);
  for (const std::string& note : format->notes()) say_note(note);
  asked.prompt.tokens = format->prompt(messages_of(text), "--prompt");
  if (const auto end = format->end_of_turn();
      end && std::find(asked.ends.begin(), asked.ends.end(), *end) == asked.ends.end())
    asked.ends.push_back(*end);
  return asked;
}

int generate_text(const Context& context, const GenerateOptions& options) {
  check(options.sampler);
  refuse_hub_checkpoint(options.checkpoint, "--checkpoint");
  const Checkpoint checkpoint = open_newest(options.checkpoint, say_note);
  TrainerConfig config = recipe_of(checkpoint, context.classes);
  config.kernels.clear();  // rules made for training's calls; the variants are chosen anew
  const Resolution resolution = resolve(config, options.hardware, context.registry, context.classes);
  for (const std::string& note : resolution.notes) say_note(note);
  config.check();
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::string words = options.prompt == "-" ? standard_input() : options.prompt;
  const Asked asked = ask(options, words, config, *tokenizer);
  const Prompt& prompt = asked.prompt;
  if (prompt.tokens.empty()) throw Error("--prompt", "must hold at least one token", "'" + words + "'");
  std::int64_t sequence = options.sequence;
  if (sequence == 0)
    sequence = std::min(config.sequence, static_cast<std::int64_t>(prompt.tokens.size()) + options.tokens);
  if (sequence < 1) throw Error("--sequence", "must be at least 1", std::to_string(sequence));
  if (const auto given = static_cast<std::int64_t>(prompt.tokens.size()); given > sequence)
    say_note(
        fmt::format("the prompt has {} tokens; the model sees the last {} (--sequence)", given, sequence));
  const auto source = static_cast<std::int64_t>(prompt.source.size());
  if (const std::int64_t trained = config.input->source(config.sequence); source > trained)
    say_note(fmt::format("the prompt has {} tokens; this model was trained on at most {}", source, trained));
  const std::unique_ptr<hal::Device> device = open_device(config, context.registry, say_note);
  Generator generator(config, sequence, source, *device, context.catalog, checkpoint.model);
  // The token that ends a text is the last.
  std::int64_t written = 0;
  bool ended = false;
  const auto goes_on = [&](std::int32_t id) {
    ++written;
    ended = std::find(asked.ends.begin(), asked.ends.end(), id) != asked.ends.end();
    if (ended && written == 1)
      say_note(
          fmt::format("the model ends at once: the first token that it writes is {} ({}), which ends a text",
                      shown(tokenizer->token(id)), id));
    return !ended;
  };
  // Of a model that reads or answers the prompt what it writes is the text, of another what goes on with the prompt.
  const bool answers = !prompt.source.empty() || options.chat;
  const std::vector<std::int32_t> given = answers ? std::vector<std::int32_t>{} : prompt.tokens;
  if (!options.json) {
    // Bytes of one letter may come as several tokens: what is printed is always the longer text's new end.
    std::string printed = tokenizer->decode(given);
    fmt::print("{}", printed);
    std::vector<std::int32_t> so_far = given;
    generator.generate(prompt, options.tokens, options.sampler, [&](std::int32_t id) {
      if (!goes_on(id)) return false;
      so_far.push_back(id);
      const std::string longer = tokenizer->decode(so_far);
      if (longer.size() > printed.size()) {
        fmt::print("{}", longer.substr(printed.size()));
        printed = longer;
      }
      std::fflush(stdout);
      return true;
    });
    fmt::print("\n");
    return 0;
  }
  std::vector<std::int32_t> text = generator.generate(prompt, options.tokens, options.sampler, goes_on);
  if (answers) text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.tokens.size()));
  const nlohmann::ordered_json json{{"checkpoint", checkpoint.path},
                                    {"prompt", words},
                                    {"text", tokenizer->decode(text)},
                                    {"tokens", text},
                                    {"ended", ended}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const Context& context, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "Write text with a checkpoint");
  auto options = std::make_shared<GenerateOptions>();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "A run's directory (its newest whole step), or one step's")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--prompt", options->prompt,
                   "The text to go on from, or, where the model has an encoder, to read; - reads it from "
                   "standard input")
      ->required();
  command->add_flag("--chat", options->chat,
                    "The prompt is what a user says, or a JSON list of messages; it is written as the "
                    "model's chat template "
                    "has it, and the answer alone is printed");
  command
      ->add_option("--tokens", options->tokens,
                   "How many to write at most; a token that ends a text is the last")
      ->check(integer_from(0));
  command->add_option("--temperature", options->sampler.temperature, "0 = always the likeliest token");
  command->add_option("--top-k", options->sampler.top_k, "Draw from the K likeliest; 0 = all");
  command->add_option("--top-p", options->sampler.top_p,
                      "Draw from the likeliest whose probabilities reach P");
  command->add_option("--seed", options->sampler.seed, "Same seed, same text")->check(integer_from(0));
  command->add_option("--sequence", options->sequence, "Tokens of context (as in training)")
      ->check(integer_from(1));
  command->add_option("--selector", options->hardware.selector, kSelectorHelp)->type_name("NAME");
  command->add_option("--device", options->hardware.device, "BACKEND or BACKEND:INDEX (as in training)");
  command->add_option("--as", options->hardware.as, "The profile to run as");
  command->add_flag("--json", options->json, "Print a JSON object");
  command->footer(
      "Examples:\n  meshloom generate --checkpoint run --prompt 'In the beginning' --temperature 0.7\n"
      "  meshloom generate --checkpoint tuned --chat --prompt 'Who are you?' --temperature 0\n"
      "  meshloom generate --checkpoint tuned --chat --prompt - < messages.json");
  command->callback([=, &action] { action = [=] { return generate_text(context, *options); }; });
}

}  // namespace meshloom::trainer
