// A binding with another access, or cut to a part of its bytes.
#pragma once

#include <cstdint>

#include "hal/device.h"

namespace meshloom::hal {

inline Binding reads(Binding binding) {
  binding.access = Access::read;
  return binding;
}
inline Binding writes(Binding binding) {
  binding.access = Access::write;
  return binding;
}
inline Binding reads_and_writes(Binding binding) {
  binding.access = Access::read_write;
  return binding;
}

// Whether both begin at the same byte.
inline bool same_place(const Binding& a, const Binding& b) {
  return a.buffer == b.buffer && a.offset == b.offset;
}

// Whether both have bytes in common that one of them writes.
inline bool conflict(const Binding& a, const Binding& b) {
  return a.buffer == b.buffer && (a.access != Access::read || b.access != Access::read) &&
         a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Bytes [offset, offset + bytes) of the binding.
inline Binding slice(Binding binding, std::int64_t offset, std::int64_t bytes) {
  binding.offset += offset;
  binding.bytes = bytes;
  return binding;
}

}  // namespace meshloom::hal
