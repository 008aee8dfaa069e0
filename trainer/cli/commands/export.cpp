#include <fmt/format.h>

#include "hal/error.h"
#include "trainer/cli/command.h"
#include "trainer/data/text/hub_name.h"
#include "trainer/interop/import.h"

namespace meshloom::trainer {

void add_export(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command =
      app.add_subcommand("export", "Export a checkpoint for Hugging Face transformers or llama.cpp");
  struct Options {
    std::string checkpoint, out;
    ExportOptions rest;
  };
  auto options = std::make_shared<Options>();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "The directory of a run (its newest whole checkpoint) or of one checkpoint")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->out, "A new directory; with --format gguf a new file")
      ->required()
      ->type_name("DIR|FILE");
  command
      ->add_option("--format", options->rest.format,
                   "hf, a directory that transformers loads, or gguf, a file that llama.cpp loads")
      ->type_name("FORMAT");
  command->add_option("--dtype", options->rest.dtype, "f32, bf16 or f16; with --format gguf also q8_0")
      ->type_name("TYPE");
  command->add_option("--shard-bytes", options->rest.shard_bytes, "The maximal size of one file in bytes")
      ->check(integer_from(1));
  command->add_option(
      "--family", options->rest.family,
      "The model_type to write, when several can describe the model (such as llama and mistral)");
  command->add_flag("--merge", options->rest.merge,
                    "Merge adapters (Lora, Dora) into the layers that they adapt; an error without adapters");
  command->add_flag("--ema", options->rest.ema,
                    "Export the moving averages of learner.ema instead of the parameters");
  command
      ->add_option(
          "--like", options->rest.like,
          "A Hugging Face directory of the same family. Further fields of its config.json, and its "
          "tokenizer_config.json, special_tokens_map.json and generation_config.json are copied, apart from "
          "end-of-text tokens and the chat template if the checkpoint has its own")
      ->type_name("DIR");
  command->footer(
      "Examples:\n  meshloom export --checkpoint tuned --out tuned-hf --dtype bf16 --like SmolLM2-135M\n"
      "  meshloom export --checkpoint tuned --out tuned.gguf --format gguf --dtype q8_0");
  command->callback([=, &action] {
    action = [=] {
      refuse_hub_checkpoint(options->checkpoint, "--checkpoint");
      refuse_hub_model(options->rest.like, "--like");
      if (options->rest.format == "gguf" && command->count("--shard-bytes") > 0)
        throw Error("--shard-bytes", "needs --format hf: a GGUF file is not split", "--format gguf");
      const std::string family =
          export_model(options->checkpoint, options->out, options->rest, registries.classes, say_note);
      fmt::print("{} in {}, as {}\n", family, options->rest.dtype, options->out);
      return 0;
    };
  });
}

}  // namespace meshloom::trainer
