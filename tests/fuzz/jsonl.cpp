// .jsonl files of examples, as far as the rows of a step, and of prompts.
#include "tests/fuzz/target.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/jsonl/jsonl_prompts.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  constexpr std::int64_t kSequence = 24;
  const tests::MemoryFile file({reinterpret_cast<const char*>(data), size});
  static const auto tokenizer = trainer::byte_tokenizer();
  tests::refusal_or_not([&] {
    trainer::JsonlFilesConfig config;
    config.files = {file.path()};
    config.end_of_text = false;
    config.check();
    const auto examples = config.open(*tokenizer, tokenizer->vocabulary(), kSequence);
    const trainer::Batch batch = examples->train(2, 1)->rows(3, 0, 2);
    if (batch.tokens.size() != 2 * kSequence || batch.targets.size() != batch.tokens.size()) __builtin_trap();
    for (const auto* values : {&batch.answers, &batch.reference_logprobs})
      if (!values->empty() && values->size() != batch.tokens.size()) __builtin_trap();
    for (const std::int32_t id : batch.tokens)
      if (id < 0 || id >= tokenizer->vocabulary()) __builtin_trap();
  });
  tests::refusal_or_not([&] {
    trainer::JsonlPromptsConfig config;
    config.files = {file.path()};
    config.too_long = "cut";
    config.check();
    const auto prompts = config.open(*tokenizer, tokenizer->vocabulary(), kSequence);
    for (std::int64_t i = 0; i < prompts->examples(); ++i) {
      const std::size_t tokens = prompts->example(i).tokens.size();
      if (tokens == 0 || tokens > kSequence / 2 || prompts->line(i).empty()) __builtin_trap();
    }
  });
  return 0;
}
