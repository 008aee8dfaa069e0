#include "trainer/io/gguf_blocks.h"

#include <cctype>
#include <string>

#include "hal/error.h"
#include "kernels/block_quantized/formats.h"
#include "trainer/io/float_convert.h"

namespace meshloom::trainer {
namespace {

namespace formats = kernels::block_quantized;

const formats::Format& format_of(const GgufBlock& block) {
  std::string name(block.name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const formats::Format* format = formats::find_format(name);
  if (format == nullptr) throw Error("GGUF", "must be a type that is read", std::string(block.name));
  return *format;
}

}  // namespace

void dequantize(const GgufBlock& block, std::span<const std::byte> from, std::span<float> into) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.data());
  if (block.elements == 1) return to_f32(block.name, from, into);
  formats::dequantize(format_of(block), bytes, static_cast<std::int64_t>(into.size()), into.data());
}

bool quantize(const GgufBlock& block, std::span<const float> from, std::span<std::byte> into) {
  if (block.elements == 1) return from_f32(block.name, from, into);
  if (block.name != "Q8_0") throw Error("GGUF", "must be a type that is written", std::string(block.name));
  return formats::quantize(format_of(block), from.data(), static_cast<std::int64_t>(from.size()),
                           reinterpret_cast<std::uint8_t*>(into.data()));
}

}  // namespace meshloom::trainer
