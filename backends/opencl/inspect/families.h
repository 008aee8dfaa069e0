// The families of GPUs whose OpenCL compilers can be had without a GPU and without a driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hal/device.h"
#include "hal/inspection.h"

namespace meshloom::backends::opencl {

struct Family {
  std::string name;                   // behind "opencl:" in the device's id
  std::vector<std::string> profiles;  // shipped ones of its cards; the first is what it stands for
};
const std::vector<Family>& families();

// Compiles for one family with the programs of its vendor.
class OfflineCompiler {
 public:
  virtual ~OfflineCompiler() = default;
  virtual std::string version() const = 0;  // of the programs
  // Throws Error where the kernel does not compile.
  virtual hal::Inspection compile(const hal::ExecutableSpec& spec, const std::string& source) const = 0;
};
// These throw Error that says what to install when a program is missing.
std::unique_ptr<OfflineCompiler> intel_compiler(const std::string& family);
std::unique_ptr<OfflineCompiler> nvidia_compiler(const std::string& family);

// A device that stands for a card of the family, compiles its kernels and runs none. Throws Error as the compilers do.
std::unique_ptr<hal::Device> open_family(const std::string& name);

}  // namespace meshloom::backends::opencl
