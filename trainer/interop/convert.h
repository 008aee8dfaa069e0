// f16 and bf16 as f32, and back.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace meshloom::trainer {

// Bytes of one element of a safetensors dtype that converts to f32 (F32, F16, BF16), or 0.
std::size_t float_bytes(std::string_view dtype);

// Exact. `from` holds into.size() elements of `dtype`.
void widen(std::string_view dtype, std::span<const std::byte> from, std::span<float> into);
// To the nearest, ties to even. False when a finite value becomes infinite.
bool narrow(std::string_view dtype, std::span<const float> from, std::span<std::byte> into);

}  // namespace meshloom::trainer
