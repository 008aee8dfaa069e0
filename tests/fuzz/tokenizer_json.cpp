#include <span>

#include "tests/fuzz/target.h"
#include "trainer/data/tokenizer/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tests::refusal_or_not([&] {
    const auto tokenizer = trainer::parse_tokenizer_json(text, "tokenizer", true);
    for (const std::string_view sample :
         {text.substr(0, 200), std::string_view("In the beginning \xe2\x88\xab\xcc\x81 42\xff\n")}) {
      const auto ids = tokenizer->encode(sample);
      for (const std::int32_t id : ids)
        if (id < 0 || id >= tokenizer->vocabulary()) __builtin_trap();
      tokenizer->decode(ids);
    }
    const std::int32_t strangers[] = {-1, 0, 1, 1 << 30};
    tokenizer->decode(strangers);
  });
  return 0;
}
