#include "tests/fuzz/target.h"
#include "trainer/run/state/run_state.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  tests::refusal_or_not([&] {
    trainer::parse_run_state({reinterpret_cast<const char*>(data), size}, "state.json");
  });
  return 0;
}
