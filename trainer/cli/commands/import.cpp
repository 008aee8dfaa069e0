#include "trainer/interop/import.h"

#include <fmt/format.h>

#include "trainer/cli/command.h"
#include "trainer/data/text/hub_name.h"

namespace meshloom::trainer {

void add_import(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command =
      app.add_subcommand("import", "Import a Hugging Face model's directory or a GGUF file as a checkpoint");
  struct Options {
    std::string from, out;
    ImportOptions import;
  };
  auto options = std::make_shared<Options>();
  command
      ->add_option(
          "directory", options->from,
          "The directory with config.json, safetensors and the tokenizer; or a GGUF file of llama.cpp")
      ->required()
      ->type_name("DIR|FILE");
  command->add_option("--out", options->out, "The directory for the checkpoint")
      ->required()
      ->type_name("DIR");
  command->add_flag("--keep-quantized", options->import.keep_quantized,
                    "Keep the weights of a GGUF file as it stores them (q8_0, q4_k, ...): they are "
                    "multiplied so, and are not "
                    "trained");
  command->footer(
      "The checkpoint has the parameters and a recipe for fine-tuning, but no optimizer state.\n"
      "Examples:\n  meshloom import SmolLM2-135M --out smol\n  meshloom import model.gguf --out model\n  "
      "meshloom import model.gguf --keep-quantized --out small\n  "
      "meshloom generate --checkpoint smol --prompt "
      "'Hello'\n"
      "  meshloom train --init smol --data text.txt --out tuned");
  command->callback([=, &action] {
    action = [=] {
      refuse_hub_model(options->from, "import");
      const Imported imported = import_model(options->from, options->out, options->import, registries.catalog,
                                             registries.classes, say_note);
      fmt::print("{}, {} parameters, as {}\n", imported.family, imported.parameters, imported.checkpoint);
      return 0;
    };
  });
}

}  // namespace meshloom::trainer
