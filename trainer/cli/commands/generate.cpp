#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/cli/inference_recipe.h"
#include "trainer/cli/model_to_run.h"
#include "trainer/cli/standard_input.h"
#include "trainer/data/jsonl/jsonl_line.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/generator.h"
#include "trainer/inference/text_stream.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

struct GenerateOptions {
  std::string checkpoint, prompt;
  std::int64_t tokens = 200, sequence = 0;
  SamplerOptions sampler;
  InferenceOptions inference;
  bool json = false, chat = false;
};

// The prompt as a list of messages: either it is one, or it is the message of a user.
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

struct Request {
  Prompt prompt;
  std::vector<std::int32_t> ends;  // generation ends at any of these tokens
};

Request request_of(const GenerateOptions& options, const std::string& text, const TrainerConfig& config,
                   const Tokenizer& tokenizer) {
  const TokenizerConfig& tokens = *config.input->tokenizer;
  Request request{{}, ends_of(tokens, tokenizer)};
  if (const std::string note = note_of_guess(tokens, tokenizer); !note.empty()) say_note(note);
  if (!options.chat) {
    request.prompt = config.input->begin(tokenizer, text);
    return request;
  }
  if (config.input->source(config.sequence) > 0)
    throw Error("--chat", "needs a model without an encoder", "one with an encoder");
  const std::unique_ptr<ChatFormat> format = chat_format_of(config, tokenizer);
  request.prompt.tokens = format->prompt(messages_of(text), {}, "--prompt");
  if (const auto end = format->end_of_turn();
      end && std::find(request.ends.begin(), request.ends.end(), *end) == request.ends.end())
    request.ends.push_back(*end);
  return request;
}

int generate_text(const Registries& registries, const GenerateOptions& options) {
  check(options.sampler);
  const ModelToRun model(options.checkpoint, "--checkpoint", registries);
  const Checkpoint& checkpoint = model.checkpoint();
  const TrainerConfig config = inference_recipe(checkpoint, options.inference, registries);
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::string text = options.prompt == "-" ? standard_input("--prompt -") : options.prompt;
  const Request request = request_of(options, text, config, *tokenizer);
  const Prompt& prompt = request.prompt;
  if (prompt.tokens.empty()) throw Error("--prompt", "must hold at least one token", "'" + text + "'");
  std::int64_t sequence = options.sequence;
  if (sequence == 0)
    sequence = std::min(config.sequence, static_cast<std::int64_t>(prompt.tokens.size()) + options.tokens);
  if (sequence < 1) throw Error("--sequence", "must be at least 1", std::to_string(sequence));
  if (const auto given = static_cast<std::int64_t>(prompt.tokens.size()); given > sequence)
    say_note(
        fmt::format("the prompt has {} tokens; the model reads the last {} (--sequence)", given, sequence));
  const auto source = static_cast<std::int64_t>(prompt.source.size());
  if (const std::int64_t trained = config.input->source(config.sequence); source > trained)
    say_note(fmt::format("the prompt has {} tokens; this model was trained on at most {}", source, trained));
  const std::unique_ptr<hal::Device> device = open_device(config, registries.devices, say_note);
  Generator generator(config, sequence, source, *device, registries.catalog, checkpoint.model);
  if (!generator.recomputes().empty())
    say_note("each token computes the whole text before it: " + generator.recomputes());
  // Generation ends with an end-of-text token.
  std::int64_t written = 0;
  bool ended = false;
  const auto continues = [&](std::int32_t id) {
    ++written;
    ended = std::find(request.ends.begin(), request.ends.end(), id) != request.ends.end();
    if (ended && written == 1)
      say_note(fmt::format("the model ends at once: its first token is {} ({}), which ends a text",
                           shown(tokenizer->token(id)), id));
    return !ended;
  };
  // If the model reads or answers the prompt, only its output is printed; otherwise the prompt and its
  // continuation.
  const bool answers = !prompt.source.empty() || options.chat;
  const std::vector<std::int32_t> given = answers ? std::vector<std::int32_t>{} : prompt.tokens;
  if (!options.json) {
    fmt::print("{}", tokenizer->decode(given));
    TextStream stream(*tokenizer, given);
    generator.generate(prompt, options.tokens, options.sampler, [&](std::int32_t id) {
      if (!continues(id)) return false;
      fmt::print("{}", stream.add(id));
      std::fflush(stdout);
      return true;
    });
    fmt::print("{}\n", stream.finish());
    return 0;
  }
  std::vector<std::int32_t> ids = generator.generate(prompt, options.tokens, options.sampler, continues);
  if (answers) ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(prompt.tokens.size()));
  const nlohmann::ordered_json json{{"checkpoint", model.shown()},
                                    {"prompt", text},
                                    {"text", tokenizer->decode(ids)},
                                    {"tokens", ids},
                                    {"ended", ended}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "Generate text with a checkpoint");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("--checkpoint", options->checkpoint, kModelToRunHelp)
      ->required()
      ->type_name("DIR|FILE");
  command
      ->add_option(
          "--prompt", options->prompt,
          "The text that the model continues, or reads if it has an encoder; - reads it from standard "
          "input")
      ->required();
  command->add_flag(
      "--chat", options->chat,
      "The prompt is a user's message or a JSON list of messages. It is formatted by the model's "
      "chat template, and only the answer is printed");
  command
      ->add_option("--tokens", options->tokens,
                   "The maximal number of tokens; an end-of-text token ends the text earlier")
      ->check(integer_from(0));
  command->add_option("--temperature", options->sampler.temperature, "0 = always the most probable token");
  command->add_option("--top-k", options->sampler.top_k, "Sample from the K most probable tokens; 0 = all");
  command->add_option("--top-p", options->sampler.top_p,
                      "Sample from the most probable tokens whose probabilities sum to P");
  command->add_option("--seed", options->sampler.seed, "The same seed gives the same text")
      ->check(integer_from(0));
  command->add_option("--sequence", options->sequence, "Tokens of context (as in training)")
      ->check(integer_from(1));
  options->inference.add_to(*command);
  command->add_flag("--json", options->json, "Print a JSON object");
  command->footer(
      "Examples:\n  meshloom generate --checkpoint run --prompt 'In the beginning' --temperature 0.7\n"
      "  meshloom generate --checkpoint tuned --chat --prompt 'Who are you?' --temperature 0\n"
      "  meshloom generate --checkpoint tuned --chat --prompt - < messages.json");
  command->callback([=, &action] { action = [=] { return generate_text(registries, *options); }; });
}

}  // namespace meshloom::trainer
