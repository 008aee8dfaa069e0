// GGUF files: the header, what the metadata say of the model, the blocks of every tensor, and the tokenizer.
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tests/fuzz/target.h"
#include "trainer/config/trainer_config.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/gguf_model.h"
#include "trainer/interop/gguf_tokenizer.h"
#include "trainer/io/atomic_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  static const layers::ClassTable classes = trainer::recipe_classes();
  const tests::MemoryFile file({reinterpret_cast<const char*>(data), size});
  tests::refusal_or_not([&] {
    const trainer::GgufFile tensors(file.path());
    for (const trainer::GgufTensor& tensor : tensors.tensors())
      // What was accepted lies in the file.
      if (tensor.bytes() < 0 || tensor.bytes() > static_cast<std::int64_t>(size)) __builtin_trap();
  });
  tests::refusal_or_not([&] {
    const trainer::GgufModel model(file.path());
    std::vector<float> values;
    for (const std::string& name : model.names()) {
      model.read(name, values);
      const trainer::TensorSource::Info info = *model.find(name);
      std::int64_t elements = 1;
      for (const std::int64_t length : info.shape) elements *= length;
      if (static_cast<std::int64_t>(values.size()) != elements) __builtin_trap();
    }
    trainer::read_config_json(model.config(), "file", classes, [](const std::string&) {});
  });
  tests::refusal_or_not([&] {
    const trainer::GgufFile metadata(file.path());
    if (!metadata.metadata().count("tokenizer.ggml.tokens")) return;
    // In memory, where syncing a file takes no time.
    const trainer::ScratchDirectory scratch("/dev/shm/meshloom-fuzz-" + std::to_string(::getpid()));
    nlohmann::json config;
    trainer::write_tokenizer_of_gguf(metadata, scratch.path(), config, [](const std::string&) {});
    if (std::filesystem::exists(scratch.path() + "/tokenizer.json"))
      trainer::tokenizer_json(scratch.path() + "/tokenizer.json", true)->encode("a text 123");
    else
      trainer::sentencepiece_tokenizer(scratch.path() + "/tokenizer.model", true)->encode("a text 123");
  });
  return 0;
}
