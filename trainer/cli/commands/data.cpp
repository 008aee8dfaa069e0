#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/models/trace.h"
#include "trainer/cli/command.h"
#include "trainer/cli/recipe_options.h"
#include "trainer/data/dataset.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct DataOptions {
  RecipeOptions recipe;
  std::int64_t show = 3;
  bool json = false;
};

// Quotes a text, as one line with visible spaces at its ends.
std::string quoted(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string raw(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer) {
  // decode() skips special tokens, which must be shown here.
  std::string text;
  std::vector<std::int32_t> pending;
  const auto flush = [&] {
    text += tokenizer.decode(pending);
    pending.clear();
  };
  for (const std::int32_t id : ids) {
    if (!tokenizer.is_added(id)) {
      pending.push_back(id);
      continue;
    }
    flush();
    text += tokenizer.token(id);
  }
  flush();
  return text;
}

OrderedJson to_json(const Example& example, const Tokenizer& tokenizer) {
  OrderedJson tokens = OrderedJson::array(), loss_mask = OrderedJson::array();
  for (std::size_t i = 0; i < example.tokens.size(); ++i) {
    tokens.push_back(tokenizer.token(example.tokens[i]));
    loss_mask.push_back(static_cast<int>(example.loss_mask[i]));
  }
  OrderedJson json{{"ids", example.tokens},
                   {"tokens", tokens},
                   {"loss_mask", loss_mask},
                   {"text", raw(example.tokens, tokenizer)}};
  if (!example.source.empty())
    json["source"] = {{"ids", example.source}, {"text", raw(example.source, tokenizer)}};
  if (example.rejected > 0) json["rejected_begins"] = example.rejected;
  if (example.reference) json["reference_logps"] = *example.reference;
  return json;
}

// What a token is to the loss.
const char* target_text(const Example& example, std::size_t token) {
  if (!example.loss_mask[token]) return "";
  return example.rejected == 0 ? "target" : token < example.rejected ? "chosen" : "rejected";
}

void print(std::int64_t number, const Example& example, const Tokenizer& tokenizer) {
  const auto targets = std::count(example.loss_mask.begin(), example.loss_mask.end(), 1);
  fmt::print("\nexample {}: {} tokens, {} targets\n", number, example.tokens.size(), targets);
  if (!example.source.empty()) fmt::print("  source: {}\n", quoted(raw(example.source, tokenizer)));
  fmt::print("  text:   {}\n", quoted(raw(example.tokens, tokenizer)));
  for (std::size_t i = 0; i < example.tokens.size(); ++i)
    fmt::print("  {:>8} {:{}} {}\n", example.tokens[i], target_text(example, i),
               example.rejected == 0 ? 6 : 8, quoted(tokenizer.token(example.tokens[i])));
}

int show_data(const Registries& registries, const DataOptions& options) {
  TrainerConfig config = options.recipe.recipe_tree(registries);
  config.check();
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::unique_ptr<Dataset> data =
      config.input->open(*tokenizer, layers::vocabulary(*config.model), config.sequence);
  const TargetFormat form = data->target_format();
  for (const std::string& note : data->notes()) say_note(note);
  if (const std::string note = note_of_guess(*config.input->tokenizer, *tokenizer);
      !note.empty() && !form.ends.empty())
    say_note(note);
  for (const std::string& note : config.input->record(form)) say_note(note);
  const std::int64_t rows =
                         data->train(config.batch, static_cast<std::uint64_t>(config.seed))->rows_per_epoch(),
                     shown = std::min(options.show, data->examples());
  std::vector<std::string> ends;
  for (const std::int32_t id : form.ends)
    ends.push_back(fmt::format("{} ({})", quoted(tokenizer->token(id)), id));
  if (options.json) {
    OrderedJson list = OrderedJson::array();
    for (std::int64_t i = 0; i < shown; ++i) list.push_back(to_json(data->example(i), *tokenizer));
    const OrderedJson json{{"examples", data->examples()},
                           {"rows", rows},
                           {"sequence", config.sequence},
                           {"tokens", data->train_tokens()},
                           {"held_out_tokens", data->eval_tokens()},
                           {"ends", form.ends},
                           {"shown", list}};
    fmt::print("{}\n", json.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    return 0;
  }
  fmt::print("{} examples, {} tokens, in {} rows of {} tokens; {} tokens held out{}\n", data->examples(),
             data->train_tokens(), rows, config.sequence, data->eval_tokens(),
             ends.empty() ? "" : fmt::format("; targets end with {}", hal::join(ends)));
  for (std::int64_t i = 0; i < shown; ++i) print(i + 1, data->example(i), *tokenizer);
  return 0;
}

}  // namespace

void add_data(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Show the examples of files as training sees them");
  auto options = std::make_shared<DataOptions>();
  RecipeOptions& recipe = options->recipe;
  command->add_option("files", recipe.data, "Text, or .jsonl files of examples, as train --data takes them")
      ->required()
      ->type_name("FILE");
  auto* init = command->add_option("--init", recipe.init, "A checkpoint, whose recipe and tokenizer are used")
                   ->type_name("DIR");
  auto* name = command->add_option("--recipe", recipe.recipe, "A recipe's name (see meshloom recipes)")
                   ->type_name("NAME");
  command->add_option("--config", recipe.config, "A recipe file, as printed by meshloom config")
      ->type_name("FILE")
      ->excludes(name);
  command->add_option("--set", recipe.set, "PATH=VALUE: sets one field of the recipe; may be repeated")
      ->allow_extra_args(false)
      ->type_name("PATH=VALUE");
  name->excludes(init);
  command->add_flag("--prompts", recipe.prompts,
                    "The lines of .jsonl files are prompts, as for train --reward");
  command
      ->add_option("--show", options->show,
                   "How many examples to print (3), or windows of one row, of running text")
      ->check(integer_from(0));
  command->add_flag("--json", options->json, "Print a JSON object");
  command->footer(
      "Examples are printed in the order of the files; a run shuffles them and packs them into rows. For "
      "each "
      "example the\n"
      "whole text is printed, and then its tokens with their ids; \"target\" marks tokens that the loss "
      "counts, \"chosen\" and \"rejected\" those of a preference.\n"
      "Examples:\n  meshloom data chats.jsonl --init smol --show 3\n  meshloom data text.txt --recipe tiny "
      "--json\n"
      "  meshloom data prompts.jsonl --init smol --prompts");
  command->callback([=, &action] { action = [=] { return show_data(registries, *options); }; });
}

}  // namespace meshloom::trainer
