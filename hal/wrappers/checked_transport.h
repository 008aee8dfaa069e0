// Wraps a transport and checks that the two sides of every message mean the same one.
#pragma once

#include <memory>

#include "hal/transport/transport.h"

namespace meshloom::hal {

// Between two ranks the k-th message that one sends must be the k-th that the other receives, with the same op, path,
// tag and bytes. The receiver throws an Error that names the first difference with both ranks, before it touches any
// memory. Every rank must wrap its transport. Each message is preceded by another one of about 1 KiB that describes it;
// of longer texts the beginning and a hash are compared.
std::unique_ptr<Transport> checked(std::unique_ptr<Transport> inner);

}  // namespace meshloom::hal
