// The exception type of the project: it says where, which rule, and what was found.
#pragma once

#include <stdexcept>
#include <string>

namespace meshloom::hal {

// what() is the line "WHERE: RULE; found FOUND", or "WHERE: RULE" when FOUND is empty. Control characters,
// which may come from a file that was refused, are written as "\x1b".
class Error : public std::runtime_error {
 public:
  Error(std::string where, std::string rule, std::string found = {});

  const std::string& where() const { return where_; }
  const std::string& rule() const { return rule_; }
  const std::string& found() const { return found_; }

 private:
  std::string where_, rule_, found_;
};

// More memory was requested than the device, or the profile that it runs as, has.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The device failed; nothing in its memory can be trusted any more.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

}  // namespace meshloom::hal

namespace meshloom {
using hal::Error;
}
