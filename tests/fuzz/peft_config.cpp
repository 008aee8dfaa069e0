// adapter_config.json of PEFT's adapters: what is taken must have a rank and a factor for every module.
#include <cmath>
#include <cstdlib>

#include "tests/fuzz/target.h"
#include "trainer/interop/lora_files.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  tests::refusal_or_not([&] {
    const trainer::PeftConfig config =
        trainer::parse_peft_config({reinterpret_cast<const char*>(data), size}, "adapter_config.json");
    for (const char* module : {"", "q_proj", "model.layers.3.mlp.down_proj"})
      if (config.rank_of(module) < 1 || !std::isfinite(config.scale_of(module))) std::abort();
  });
  return 0;
}
