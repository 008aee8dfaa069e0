// The tensors of a file of this folder.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trainer/io/safetensors.h"

namespace meshloom {

class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(MESHLOOM_SOURCE_DIR "/tests/golden/" + name + ".safetensors") {}

  template <typename T>
  std::vector<T> read(const std::string& name) const {
    const trainer::StoredTensor* tensor = file_.find(name);
    if (!tensor) throw hal::Error("golden", "must hold '" + name + "'");
    std::vector<T> values(static_cast<std::size_t>(tensor->bytes()) / sizeof(T));
    file_.read(*tensor, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  trainer::SafetensorsFile file_;
};

}  // namespace meshloom
