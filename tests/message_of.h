// What tests of errors share.
#pragma once

#include <string>

#include "hal/error.h"

namespace meshloom::tests {

// What `call` throws, as text; "no error" when it does not.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const hal::Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace meshloom::tests
