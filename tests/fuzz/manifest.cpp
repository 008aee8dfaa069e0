#include "trainer/checkpoint/manifest.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  tests::refusal_or_not([&] {
    const auto manifest = trainer::parse_manifest({reinterpret_cast<const char*>(data), size}, "manifest");
    trainer::parse_manifest(trainer::to_json(manifest), "manifest again");
  });
  return 0;
}
