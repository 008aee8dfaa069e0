// Rows of floats of any dtype as f32: in place where they are f32; other dtypes are widened into scratch that stays in
// cache, and rounded from there. A row may be read and written in the same storage.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/device/kernel.h"
#include "backends/cpu/kernels/cast.h"

namespace meshloom::backends::cpu {

class RowsIn {
 public:
  RowsIn(const KernelArgs& args, std::size_t binding, hal::DType dtype)
      : data_(args.at<const std::byte>(binding)), dtype_(dtype) {}

  // Elements [start, start + count); valid until the next call.
  const float* row(std::int64_t start, std::int64_t count) {
    if (dtype_ == hal::DType::f32) return reinterpret_cast<const float*>(data_) + start;
    scratch_.resize(static_cast<std::size_t>(count));
    widen(data_ + start * static_cast<std::int64_t>(hal::size_of(dtype_)), dtype_, count, scratch_.data());
    return scratch_.data();
  }

 private:
  const std::byte* data_;
  hal::DType dtype_;
  std::vector<float> scratch_;
};

class RowsOut {
 public:
  RowsOut(const KernelArgs& args, std::size_t binding, hal::DType dtype)
      : data_(args.at<std::byte>(binding)), dtype_(dtype) {}

  // Where to write elements [start, start + count); done() stores them.
  float* row(std::int64_t start, std::int64_t count) {
    if (dtype_ == hal::DType::f32) return reinterpret_cast<float*>(data_) + start;
    scratch_.resize(static_cast<std::size_t>(count));
    start_ = start;
    return scratch_.data();
  }
  void done() {
    if (dtype_ == hal::DType::f32) return;
    narrow(scratch_.data(), static_cast<std::int64_t>(scratch_.size()), dtype_,
           data_ + start_ * static_cast<std::int64_t>(hal::size_of(dtype_)));
  }

 private:
  std::byte* data_;
  hal::DType dtype_;
  std::int64_t start_ = 0;
  std::vector<float> scratch_;
};

}  // namespace meshloom::backends::cpu
