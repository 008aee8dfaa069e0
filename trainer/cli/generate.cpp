#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/integer.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/inference/generator.h"
#include "trainer/input/tokenizer.h"
#include "trainer/rules/kept_recipe.h"

namespace meshloom::trainer {
namespace {

struct Options {
  std::string checkpoint, prompt;
  std::int64_t tokens = 200, sequence = 0;
  SamplerOptions sampler;
  HardwareRequest hardware;
  bool json = false;
};

int generate_text(const Context& context, const Options& options) {
  check(options.sampler);
  const Checkpoint checkpoint = open_newest(options.checkpoint, say_note);
  TrainerConfig config = recipe_of(checkpoint, context.classes);
  config.kernels.clear();  // rules made for training's calls; the variants are chosen anew
  const Resolution resolution = resolve(config, options.hardware, context.registry, context.classes);
  for (const std::string& note : resolution.notes) say_note(note);
  config.check();
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const Prompt prompt = config.input->begin(*tokenizer, options.prompt);
  const bool reads = !prompt.source.empty();
  if (prompt.tokens.empty()) throw Error("--prompt", "must hold at least one token", "'" + options.prompt + "'");
  std::int64_t sequence = options.sequence;
  if (sequence == 0)
    sequence = std::min(config.sequence, static_cast<std::int64_t>(prompt.tokens.size()) + options.tokens);
  if (sequence < 1) throw Error("--sequence", "must be at least 1", std::to_string(sequence));
  if (const auto given = static_cast<std::int64_t>(prompt.tokens.size()); given > sequence)
    say_note(fmt::format("the prompt has {} tokens; the model sees the last {} (--sequence)", given, sequence));
  const auto source = static_cast<std::int64_t>(prompt.source.size());
  if (const std::int64_t trained = config.input->source(config.sequence); source > trained)
    say_note(fmt::format("the prompt has {} tokens; this model was trained on at most {}", source, trained));
  const std::unique_ptr<hal::Device> device = open_device(config, context.registry, say_note);
  Generator generator(config, sequence, source, *device, context.catalog, checkpoint.model);
  // The token that ends a text is the last.
  const auto goes_on = [end = tokenizer->end_of_text()](std::int32_t id) { return id != end; };
  // Of a model that reads the prompt what it writes is the text, of another what goes on with the prompt.
  const std::vector<std::int32_t> given = reads ? std::vector<std::int32_t>{} : prompt.tokens;
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
  if (reads) text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt.tokens.size()));
  const nlohmann::ordered_json json{{"checkpoint", checkpoint.path},
                                    {"prompt", options.prompt},
                                    {"text", tokenizer->decode(text)},
                                    {"tokens", text}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const Context& context, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "Write text with a checkpoint");
  auto options = std::make_shared<Options>();
  command->add_option("--checkpoint", options->checkpoint, "A run's directory (its newest whole step), or one step's")
      ->required()
      ->type_name("DIR");
  command->add_option("--prompt", options->prompt, "The text to go on from, or, where the model has an encoder, to read")->required();
  command->add_option("--tokens", options->tokens, "How many to write at most; the token that ends a text is the last")->check(integer_from(0));
  command->add_option("--temperature", options->sampler.temperature, "0 = always the likeliest token");
  command->add_option("--top-k", options->sampler.top_k, "Draw from the K likeliest; 0 = all");
  command->add_option("--top-p", options->sampler.top_p, "Draw from the likeliest whose probabilities reach P");
  command->add_option("--seed", options->sampler.seed, "Same seed, same text")->check(integer_from(0));
  command->add_option("--sequence", options->sequence, "Tokens of context (as in training)")
      ->check(integer_from(1));
  command->add_option("--selector", options->hardware.selector, kSelectorHelp)->type_name("NAME");
  command->add_option("--device", options->hardware.device, "BACKEND or BACKEND:INDEX (as in training)");
  command->add_option("--as", options->hardware.as, "The profile to run as");
  command->add_flag("--json", options->json, "Print a JSON object");
  command->footer("Example:\n  meshloom generate --checkpoint run --prompt 'In the beginning' --temperature 0.7");
  command->callback([=, &action] { action = [=] { return generate_text(context, *options); }; });
}

}  // namespace meshloom::trainer
