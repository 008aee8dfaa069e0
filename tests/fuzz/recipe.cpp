// Recipes as text. One that is accepted prints, and what is printed reads back as the same.
#include "layers/config/tree.h"
#include "tests/fuzz/target.h"
#include "trainer/config/trainer_config.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  static const layers::ClassTable classes = trainer::recipe_classes();
  tests::refusal_or_not([&] {
    const auto config = trainer::parse_recipe({reinterpret_cast<const char*>(data), size}, classes, "recipe");
    const std::string text = trainer::print_recipe(config);
    if (trainer::print_recipe(trainer::parse_recipe(text, classes, "printed")) != text) __builtin_trap();
    layers::check_complete(config);
    config.check();
  });
  return 0;
}
