#include "backends/simt/host/aliasing.h"

#include <cstddef>
#include <string>

#include "hal/binding.h"

namespace meshloom::backends::simt {
namespace {

std::string name_of(std::size_t binding) { return "ALIASED_" + std::to_string(binding); }

}  // namespace

std::uint32_t aliased_bindings(std::span<const hal::Binding> bindings) {
  std::uint32_t aliased = 0;
  for (std::size_t i = 0; i < bindings.size(); ++i)
    for (std::size_t j = i + 1; j < bindings.size(); ++j)
      if (hal::conflict(bindings[i], bindings[j])) aliased |= 1u << i | 1u << j;
  return aliased;
}

std::vector<hal::Define> alias_defines(std::uint32_t aliased) {
  std::vector<hal::Define> defines;
  for (std::size_t i = 0; aliased >> i; ++i)
    if (aliased >> i & 1) defines.push_back({name_of(i), "1"});
  return defines;
}

std::uint32_t declared_aliased(const hal::ExecutableSpec& spec) {
  std::uint32_t aliased = 0;
  for (std::size_t i = 0; i < spec.bindings.size(); ++i)
    for (const hal::Define& define : spec.defines)
      if (define.name == name_of(i) && define.value == "1") aliased |= 1u << i;
  return aliased;
}

}  // namespace meshloom::backends::simt
