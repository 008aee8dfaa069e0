#include <span>

#include "tests/fuzz/target.h"
#include "trainer/data/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const tests::MemoryFile file(bytes);
  tests::refusal_or_not([&] {
    const auto tokenizer = trainer::sentencepiece_tokenizer(file.path());
    for (const std::string_view sample :
         {bytes.substr(0, 200), std::string_view("In the beginning \xe2\x88\xab\xcc\x81 42\xff\n")}) {
      const auto ids = tokenizer->encode(sample);
      for (const std::int32_t id : ids)
        if (id < 0 || id >= tokenizer->vocabulary()) __builtin_trap();
      tokenizer->decode(ids);
    }
  });
  return 0;
}
