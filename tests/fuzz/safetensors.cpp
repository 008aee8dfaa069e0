#include <algorithm>
#include <vector>

#include "tests/fuzz/target.h"
#include "trainer/io/safetensors.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  const tests::MemoryFile file({reinterpret_cast<const char*>(data), size});
  tests::refusal_or_not([&] {
    const trainer::SafetensorsFile tensors(file.path());
    for (const trainer::StoredTensor& tensor : tensors.tensors()) {
      // What was accepted lies in the file.
      if (tensor.bytes() < 0 || tensor.bytes() > static_cast<std::int64_t>(size)) __builtin_trap();
      std::vector<std::byte> values(static_cast<std::size_t>(tensor.bytes()));
      tensors.read(tensor, values);
    }
  });
  return 0;
}
