#include "tests/faults/shim/faults.h"

#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

namespace meshloom::tests {
namespace {

struct Fault {
  std::string call, path;
  long first = 0, count = 0;
  int code = 0;
  long seen = 0;
};

std::vector<Fault>& faults() {
  static std::vector<Fault> all = [] {
    std::vector<Fault> read;
    const char* text = std::getenv("MESHLOOM_FAULTS");
    std::istringstream list(text ? text : "");
    for (std::string one; std::getline(list, one, ';');) {
      Fault fault;
      std::istringstream(one) >> fault.call >> fault.path >> fault.first >> fault.count >> fault.code;
      read.push_back(fault);
    }
    return read;
  }();
  return all;
}

}  // namespace

bool any_faults() { return !faults().empty(); }

std::optional<int> fault_of(const char* call, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> guard(mutex);
  for (Fault& fault : faults()) {
    if (fault.call != call || (fault.path != "-" && path.find(fault.path) == std::string::npos)) continue;
    const long number = ++fault.seen;
    if (number >= fault.first && number < fault.first + fault.count) return fault.code;
  }
  return std::nullopt;
}

}  // namespace meshloom::tests
