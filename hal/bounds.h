// Checks that byte ranges lie within a buffer, without sums that could overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hal/device.h"

namespace meshloom::hal {

bool in_bounds(const Buffer& buffer, std::int64_t offset, std::int64_t bytes);

// Throw Error (where = `where`) when the range of a host access, or a binding, does not lie within the
// buffer.
void check_bounds(const Buffer& buffer, std::int64_t offset, std::size_t bytes, const std::string& where);
void check_bounds(const Buffer& buffer, const Binding& binding, const std::string& where);

}  // namespace meshloom::hal
