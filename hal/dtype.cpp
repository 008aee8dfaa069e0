#include "hal/dtype.h"

#include <array>
#include <string>
#include <utility>

#include "hal/error.h"

namespace meshloom::hal {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 7> kNames{{{DType::f32, "f32"},
                                                                    {DType::f16, "f16"},
                                                                    {DType::bf16, "bf16"},
                                                                    {DType::i32, "i32"},
                                                                    {DType::u32, "u32"},
                                                                    {DType::i8, "i8"},
                                                                    {DType::u8, "u8"}}};

}  // namespace

std::string_view to_string(DType dtype) {
  for (const auto& [type, name] : kNames)
    if (type == dtype) return name;
  return "?";
}

DType dtype_from_string(std::string_view text) {
  for (const auto& [type, name] : kNames)
    if (name == text) return type;
  throw Error("dtype", "must be one of f32, f16, bf16, i32, u32, i8, u8", "'" + std::string(text) + "'");
}

}  // namespace meshloom::hal
