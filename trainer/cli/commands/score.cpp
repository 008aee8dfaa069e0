#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/cli/inference_recipe.h"
#include "trainer/cli/model_to_run.h"
#include "trainer/cli/score_preferences.h"
#include "trainer/cli/standard_input.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/inference/scorer.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"
#include "trainer/run/progress.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

struct ScoreOptions {
  std::string checkpoint, text, file, preferences, out;
  std::int64_t sequence = 0, stride = 0, top = 0;
  bool ids = false, json = false, quiet = false;
  InferenceOptions inference;
};

std::string text_of(const ScoreOptions& options) {
  if (!options.file.empty()) return read_file(options.file, "'" + options.file + "'");
  return options.text == "-" ? standard_input("--text -") : options.text;
}

// A JSON list of token ids.
std::vector<std::int32_t> ids_of(const std::string& text) {
  const nlohmann::json list = parse_json(text, "--ids", "the text", 2);
  if (!list.is_array()) throw Error("--ids", "the text must be a JSON list of token ids", "another value");
  std::vector<std::int32_t> ids;
  for (const auto& item : list) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 0 || item.get<std::int64_t>() > INT32_MAX)
      throw Error("--ids", "an id must be an integer from 0 on", item.dump());
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const Tokenizer& tokenizer, const std::pair<std::int32_t, float>& token) {
  return {{"id", token.first}, {"token", tokenizer.token(token.first)}, {"logprob", number(token.second)}};
}

int score(const Registries& registries, const ScoreOptions& options) {
  const ModelToRun model(options.checkpoint, "--checkpoint", registries);
  if (!options.preferences.empty())
    return score_preferences(model, registries,
                             {options.preferences, options.out, options.sequence, options.inference});
  const Checkpoint& checkpoint = model.checkpoint();
  const TrainerConfig config = inference_recipe(checkpoint, options.inference, registries);
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::string text = text_of(options);
  const std::vector<std::int32_t> tokens =
      options.ids ? ids_of(text) : config.input->begin(*tokenizer, text).tokens;
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 2) throw Error("the text", "must have at least two tokens", std::to_string(count));
  const std::int64_t window =
                         options.sequence > 0 ? options.sequence : std::max<std::int64_t>(2, config.sequence),
                     length = std::min(count, window);
  if (options.stride >= window)
    throw Error("--stride", fmt::format("must be below the window of {} tokens", window),
                std::to_string(options.stride));
  const std::int64_t stride = options.stride > 0 ? options.stride : std::max<std::int64_t>(1, length / 2);
  const std::unique_ptr<hal::Device> device = open_device(config, registries.devices, say_note);
  Scorer scorer(config, length, *device, registries.catalog, checkpoint.model);
  if (!scorer.batch_dependence().empty())
    say_note("scores depend on the text's length, in rounding: " + scorer.batch_dependence());

  const std::vector<TokenScore> scores = scorer.score(tokens, stride, static_cast<int>(options.top),
                                                      ProgressNotes(count, "tokens are scored", say_note));
  double sum = 0;
  for (const TokenScore& each : scores) sum += each.logprob;
  const double mean = sum / static_cast<double>(scores.size());
  if (options.json) {
    Json list =
        Json::array({{{"id", tokens[0]}, {"token", tokenizer->token(tokens[0])}, {"logprob", nullptr}}});
    for (const TokenScore& each : scores) {
      Json one = to_json(*tokenizer, {each.id, each.logprob});
      for (const auto& alternative : each.top) one["top"].push_back(to_json(*tokenizer, alternative));
      list.push_back(std::move(one));
    }
    const Json json{{"checkpoint", model.shown()},  {"tokens", list},
                    {"scored", scores.size()},      {"logprob", number(sum)},
                    {"mean_logprob", number(mean)}, {"perplexity", number(std::exp(-mean))}};
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  if (!options.quiet) {
    fmt::print("{:>8}  {:>11}  token\n", "position", "logprob");
    fmt::print("{:>8}  {:>11}  {}\n", 0, "", shown(tokenizer->token(tokens[0])));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      std::string line = fmt::format("{:>8}  {:>11.6f}  {}", i + 1, scores[i].logprob,
                                     shown(tokenizer->token(scores[i].id)));
      for (const auto& [id, logprob] : scores[i].top)
        line += fmt::format("  {} {:.4f}", shown(tokenizer->token(id)), logprob);
      fmt::print("{}\n", line);
    }
  }
  fmt::print("{} tokens scored, log-probability {:.6f}, mean {:.6f}, perplexity {:.6g}\n", scores.size(), sum,
             mean, std::exp(-mean));
  return 0;
}

}  // namespace

void add_score(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand(
      "score", "Print the log-probabilities of a text's tokens, or add those of preferences to a file");
  auto options = std::make_shared<ScoreOptions>();
  command->add_option("--checkpoint", options->checkpoint, kModelToRunHelp)
      ->required()
      ->type_name("DIR|FILE");
  CLI::Option_group* source = command->add_option_group("text", "What is scored");
  source->add_option("--text", options->text, "The text; - reads it from standard input");
  source->add_option("--file", options->file, "A file with the text")->type_name("FILE");
  CLI::Option* preferences = source
                                 ->add_option("--preferences", options->preferences,
                                              "A .jsonl file of preferences: --out gets its lines with the "
                                              "log-probabilities of both answers, "
                                              "for training with DPOLoss")
                                 ->type_name("FILE");
  source->require_option(1);
  CLI::Option* out = command->add_option("--out", options->out, "Where --preferences writes")
                         ->type_name("FILE")
                         ->needs(preferences);
  preferences->needs(out);
  command->add_flag("--ids", options->ids, "The text is a JSON list of token ids")->excludes(preferences);
  command
      ->add_option("--sequence", options->sequence,
                   "Tokens that the model reads at once, at most (as in training)")
      ->check(integer_from(2));
  command
      ->add_option("--stride", options->stride,
                   "Tokens between the windows in which a longer text is read; a token is scored in the "
                   "first that has "
                   "it. 0 = half of a window")
      ->check(integer_from(0))
      ->excludes(preferences);
  command->add_option("--top", options->top, "Also print so many of the most probable tokens at each place")
      ->check(CLI::Range(0, 20))
      ->excludes(preferences);
  options->inference.add_to(*command);
  CLI::Option* json =
      command->add_flag("--json", options->json, "Print a JSON object")->excludes(preferences);
  command->add_flag("--quiet,-q", options->quiet, "Print the sums alone")
      ->excludes(json)
      ->excludes(preferences);
  command->footer(
      "The text is computed at once, by the layers as training runs them, without caches. On the CPU in f32 "
      "the scores of a text that fits a window are those of `meshloom serve`, bit by bit.\n"
      "Examples:\n  meshloom score --checkpoint run --text 'In the beginning'\n"
      "  meshloom score --checkpoint run --file text.txt --quiet\n"
      "  meshloom score --checkpoint smol --preferences preferences.jsonl --out scored.jsonl");
  command->callback([=, &action] { action = [=] { return score(registries, *options); }; });
}

}  // namespace meshloom::trainer
