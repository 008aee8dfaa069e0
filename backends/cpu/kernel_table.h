// Every kernel of the CPU backend by name.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "backends/cpu/device/kernel.h"

namespace meshloom::backends::cpu {

class KernelTable {
 public:
  KernelTable();
  const Kernel& find(std::string_view name) const;  // throws hal::Error

 private:
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace meshloom::backends::cpu
