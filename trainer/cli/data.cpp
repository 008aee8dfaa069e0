#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "hal/suggest.h"
#include "layers/models/trace.h"
#include "trainer/cli/command.h"
#include "trainer/cli/integer.h"
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

// In one line, and so that a space at an end is seen.
std::string quoted(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string raw(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer) {
  // decode() leaves special tokens out; here they are what is looked for.
  std::string text;
  std::vector<std::int32_t> words;
  const auto flush = [&] {
    text += tokenizer.decode(words);
    words.clear();
  };
  for (const std::int32_t id : ids) {
    if (!tokenizer.is_added(id)) {
      words.push_back(id);
      continue;
    }
    flush();
    text += tokenizer.token(id);
  }
  flush();
  return text;
}

OrderedJson to_json(const Example& example, const Tokenizer& tokenizer) {
  OrderedJson tokens = OrderedJson::array(), learned = OrderedJson::array();
  for (std::size_t i = 0; i < example.tokens.size(); ++i) {
    tokens.push_back(tokenizer.token(example.tokens[i]));
    learned.push_back(static_cast<int>(example.loss_mask[i]));
  }
  OrderedJson json{{"ids", example.tokens},
                   {"tokens", tokens},
                   {"learned", learned},
                   {"text", raw(example.tokens, tokenizer)}};
  if (!example.source.empty())
    json["source"] = {{"ids", example.source}, {"text", raw(example.source, tokenizer)}};
  return json;
}

void print(std::int64_t number, const Example& example, const Tokenizer& tokenizer) {
  const auto learned = std::count(example.loss_mask.begin(), example.loss_mask.end(), 1);
  fmt::print("\nexample {}: {} tokens, {} learned\n", number, example.tokens.size(), learned);
  if (!example.source.empty()) fmt::print("  reads: {}\n", quoted(raw(example.source, tokenizer)));
  fmt::print("  text:  {}\n", quoted(raw(example.tokens, tokenizer)));
  for (std::size_t i = 0; i < example.tokens.size(); ++i)
    fmt::print("  {:>8} {} {}\n", example.tokens[i], example.loss_mask[i] ? "learned" : "       ",
               quoted(tokenizer.token(example.tokens[i])));
}

int show_data(const Context& context, const DataOptions& options) {
  TrainerConfig config = options.recipe.recipe_tree(context);
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
             ends.empty() ? "" : fmt::format("; what is learned ends with {}", hal::join(ends)));
  for (std::int64_t i = 0; i < shown; ++i) print(i + 1, data->example(i), *tokenizer);
  return 0;
}

}  // namespace

void add_data(CLI::App& app, const Context& context, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Show the examples of files as training sees them");
  auto options = std::make_shared<DataOptions>();
  RecipeOptions& recipe = options->recipe;
  command->add_option("files", recipe.data, "Text, or .jsonl files of examples, as train --data takes them")
      ->required()
      ->type_name("FILE");
  auto* init =
      command->add_option("--init", recipe.init, "A checkpoint, whose recipe and tokenizer are taken")
          ->type_name("DIR");
  auto* name = command->add_option("--recipe", recipe.recipe, "A recipe's name (see meshloom recipes)")
                   ->type_name("NAME");
  command->add_option("--config", recipe.config, "A recipe as a file, as meshloom config prints it")
      ->type_name("FILE")
      ->excludes(name);
  command->add_option("--set", recipe.set, "PATH=VALUE: sets one field of the tree; may be given again")
      ->allow_extra_args(false)
      ->type_name("PATH=VALUE");
  name->excludes(init);
  command
      ->add_option("--show", options->show,
                   "How many examples to print (3); of running text, windows of a row")
      ->check(integer_from(0));
  command->add_flag("--json", options->json, "Print a JSON object");
  command->footer(
      "Examples come in the order of the files; a run reads them shuffled and packed into rows. Of each the "
      "whole text is "
      "printed,\nand its tokens with their ids; those that are learned are marked.\n"
      "Examples:\n  meshloom data chats.jsonl --init smol --show 3\n  meshloom data text.txt --recipe tiny "
      "--json");
  command->callback([=, &action] { action = [=] { return show_data(context, *options); }; });
}

}  // namespace meshloom::trainer
