#include "hal/bounds.h"

#include "hal/error.h"

namespace meshloom::hal {
namespace {

std::string size_of(const Buffer& buffer) {
  return "buffer '" + buffer.label() + "' of " + std::to_string(buffer.bytes()) + " bytes";
}

std::string place(std::int64_t offset, std::int64_t bytes) {
  return std::to_string(bytes) + " bytes at " + std::to_string(offset);
}

}  // namespace

bool in_bounds(const Buffer& buffer, std::int64_t offset, std::int64_t bytes) {
  return offset >= 0 && bytes >= 0 && offset <= buffer.bytes() && bytes <= buffer.bytes() - offset;
}

void check_bounds(const Buffer& buffer, std::int64_t offset, std::size_t bytes, const std::string& where) {
  const auto count = static_cast<std::int64_t>(bytes);
  if (!in_bounds(buffer, offset, count))
    throw Error(where, "must stay inside " + size_of(buffer), place(offset, count));
}

void check_bounds(const Buffer& buffer, const Binding& binding, const std::string& where) {
  if (!in_bounds(buffer, binding.offset, binding.bytes))
    throw Error(where, "a binding must lie inside its " + size_of(buffer),
                place(binding.offset, binding.bytes));
}

}  // namespace meshloom::hal
