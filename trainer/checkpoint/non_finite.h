#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hal/dtype.h"

namespace meshloom::trainer {

// Counts infinities and NaNs. Integers have none.
class NonFiniteCounter {
 public:
  void add_values(const std::string& name, hal::DType dtype, std::span<const std::byte> data);
  std::int64_t count() const { return count_; }
  // "12 values that are not finite, the first in 'decoder/...'"
  std::string text() const;

 private:
  std::int64_t count_ = 0;
  std::string first_;
};

}  // namespace meshloom::trainer
