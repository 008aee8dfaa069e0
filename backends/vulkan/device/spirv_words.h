// The words of a module in SPIR-V (the specification, section 2.3).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hal/error.h"

namespace meshloom::backends::vulkan {

inline constexpr std::size_t kSpirvHeaderWords = 5;

// Calls function(opcode, operands) for every instruction. Throws Error with `where` where one ends beyond the module.
template <typename Function>
void for_each_instruction(std::span<const std::uint32_t> words, const std::string& where, Function function) {
  for (std::size_t at = kSpirvHeaderWords; at < words.size();) {
    const std::size_t length = words[at] >> 16;
    if (length == 0 || length > words.size() - at)
      throw hal::Error(where, "every instruction must end within the module",
                       "one at word " + std::to_string(at));
    function(words[at] & 0xffffu, words.subspan(at + 1, length - 1));
    at += length;
  }
}

// A literal string at the beginning of these operands.
inline std::string text_of(std::span<const std::uint32_t> operands) {
  const char* begin = reinterpret_cast<const char*>(operands.data());
  const std::string_view all(begin, operands.size() * 4);
  return std::string(all.substr(0, all.find('\0')));
}

}  // namespace meshloom::backends::vulkan
