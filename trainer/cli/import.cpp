#include "trainer/interop/import.h"

#include <fmt/format.h>

#include "trainer/cli/command.h"
#include "trainer/data/text/hub_name.h"

namespace meshloom::trainer {

void add_import(CLI::App& app, const Context& context, Action& action) {
  CLI::App* command = app.add_subcommand("import", "Make a checkpoint of a Hugging Face model's directory");
  struct Options {
    std::string from, out;
  };
  auto options = std::make_shared<Options>();
  command->add_option("directory", options->from, "With config.json, safetensors and the tokenizer")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->out, "Where the checkpoint goes")->required()->type_name("DIR");
  command->footer(
      "The checkpoint holds parameters and a recipe to fine-tune with, but no optimizer's state.\n"
      "Examples:\n  meshloom import SmolLM2-135M --out smol\n  meshloom generate --checkpoint smol --prompt "
      "'Hello'\n"
      "  meshloom train --init smol --data text.txt --out tuned");
  command->callback([=, &action] {
    action = [=] {
      refuse_hub_model(options->from, "import");
      const Imported imported =
          import_model(options->from, options->out, context.catalog, context.classes, say_note);
      fmt::print("{}, {} parameters, as {}\n", imported.family, imported.parameters, imported.checkpoint);
      return 0;
    };
  });
}

}  // namespace meshloom::trainer
