// config.json of Hugging Face models: the tree that comes of it must be one that can be written and read
// again.
#include "trainer/interop/config_json.h"
#include "tests/fuzz/target.h"
#include "trainer/config/trainer_config.h"
#include "trainer/io/json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  static const layers::ClassTable classes = trainer::recipe_classes();
  tests::refusal_or_not([&] {
    const auto json =
        trainer::parse_json({reinterpret_cast<const char*>(data), size}, "config.json", "the file", 64);
    const auto read = trainer::read_config_json(json, "config.json", classes, [](const std::string&) {});
    trainer::write_config_json(read.model, 1024, "", classes);
  });
  return 0;
}
