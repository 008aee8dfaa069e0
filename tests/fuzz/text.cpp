// Training data as text: what is refused and what is read, and that lines of it are found again.
#include "tests/fuzz/target.h"
#include "trainer/data/text/file_kind.h"
#include "trainer/data/text/lines.h"
#include "trainer/data/tokenizer/unicode.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const tests::MemoryFile file(text);
  tests::refusal_or_not([&] {
    trainer::check_text(text, file.path(), "data");
    if (trainer::first_bad_byte(text) != std::string_view::npos) __builtin_trap();
  });
  tests::refusal_or_not([&] {
    trainer::LineFile lines(file.path(), "data");
    for (trainer::LineFile::Line line; lines.next(line);)
      if (lines.at(line.offset, line.bytes) != line.text) __builtin_trap();
  });
  return 0;
}
