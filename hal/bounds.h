// Whether bytes lie within a buffer, asked without sums that could wrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hal/device.h"

namespace meshloom::hal {

bool in_bounds(const Buffer& buffer, std::int64_t offset, std::int64_t bytes);

// Throw Error (where = `where`) for a read or a write by the host, and for a binding, that does not.
void check_bounds(const Buffer& buffer, std::int64_t offset, std::size_t bytes, const std::string& where);
void check_bounds(const Buffer& buffer, const Binding& binding, const std::string& where);

}  // namespace meshloom::hal
