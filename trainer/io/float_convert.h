// Converts f16 and bf16 to f32 and back.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// The bytes of one element of a safetensors dtype that can be converted to f32 (F32, F16, BF16), or 0.
std::size_t float_bytes(std::string_view dtype);

// Converts exactly. `from` has into.size() elements of `dtype`.
void to_f32(std::string_view dtype, std::span<const std::byte> from, std::span<float> into);
// Rounds to nearest, ties to even. Returns false when a finite value becomes infinite.
bool from_f32(std::string_view dtype, std::span<const float> from, std::span<std::byte> into);

}  // namespace meshloom::trainer
