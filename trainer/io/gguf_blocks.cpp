#include "trainer/io/gguf_blocks.h"

#include <cctype>
#include <string>

#include "hal/error.h"
#include "trainer/io/float_convert.h"

namespace meshloom::trainer {

namespace formats = kernels::block_quantized;

const formats::Format* block_format(const GgufBlock& block) {
  std::string name(block.name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return formats::find_format(name);
}

void dequantize(const GgufBlock& block, std::span<const std::byte> from, std::span<float> into) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.data());
  if (block.elements == 1) return to_f32(block.name, from, into);
  formats::dequantize(*block_format(block), bytes, static_cast<std::int64_t>(into.size()), into.data());
}

bool quantize(const GgufBlock& block, std::span<const float> from, std::span<std::byte> into) {
  if (block.elements == 1) return from_f32(block.name, from, into);
  if (block.name != "Q8_0") throw Error("GGUF", "must be a type that is written", std::string(block.name));
  return formats::quantize(*block_format(block), from.data(), static_cast<std::int64_t>(from.size()),
                           reinterpret_cast<std::uint8_t*>(into.data()));
}

}  // namespace meshloom::trainer
