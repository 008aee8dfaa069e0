// The one exception type of the project: where, which rule, what was found.
#pragma once

#include <stdexcept>
#include <string>

namespace meshloom::hal {

// what() reads "WHERE: RULE; found FOUND" on one line ("WHERE: RULE" when nothing was found); control characters, which
// may come from the file that was refused, read "\x1b".
class Error : public std::runtime_error {
 public:
  Error(std::string where, std::string rule, std::string found = {});

  const std::string& where() const { return where_; }
  const std::string& rule() const { return rule_; }
  const std::string& found() const { return found_; }

 private:
  std::string where_, rule_, found_;
};

// A request for memory that the device, or the profile it runs as, cannot hold.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The device stopped answering; nothing on it can be trusted any more.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

}  // namespace meshloom::hal

namespace meshloom {
using hal::Error;
}
