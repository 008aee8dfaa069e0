// Tensors of a safetensors file, as vectors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "hal/error.h"
#include "trainer/io/safetensors.h"

namespace meshloom::tests {

template <typename T, typename File>
std::vector<T> read_tensor(const File& file, const std::string& name) {
  const trainer::StoredTensor* tensor = file.find(name);
  if (!tensor) throw hal::Error(file.path(), "must hold '" + name + "'");
  std::vector<T> values(static_cast<std::size_t>(tensor->bytes()) / sizeof(T));
  file.read(*tensor, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace meshloom::tests
