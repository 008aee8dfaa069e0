// The families of GPUs whose OpenCL compilers can be had without a GPU and without a driver.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hal/device.h"
#include "hal/inspection.h"

namespace meshloom::backends::opencl {

// Their names, behind "opencl:" in a device's id and in Profile::isa of their cards.
std::vector<std::string> families();
std::vector<std::string> intel_families();
std::vector<std::string> nvidia_families();

// Compiles for one family with the programs of its vendor.
class OfflineCompiler {
 public:
  virtual ~OfflineCompiler() = default;
  virtual std::string version() const = 0;  // of the programs
  // Throws Error where the kernel does not compile.
  virtual hal::Inspection compile(const hal::ExecutableSpec& spec, const std::string& source) const = 0;

 protected:
  explicit OfflineCompiler(std::string family) : family_(std::move(family)) {}
  std::string where(const hal::ExecutableSpec& spec) const;  // of an error
  // Throws the Error of a kernel that does not compile, with the first lines of what the programs printed.
  [[noreturn]] void refuse(const hal::ExecutableSpec& spec, const std::string& output) const;

 private:
  std::string family_;
};
// These throw Error that says what to install when a program is missing.
std::unique_ptr<OfflineCompiler> intel_compiler(const std::string& family);
std::unique_ptr<OfflineCompiler> nvidia_compiler(const std::string& family);

// A device that stands for the largest card of the family with a shipped profile, compiles its kernels and runs none. Throws Error as the compilers do.
std::unique_ptr<hal::Device> open_family(const std::string& name);

}  // namespace meshloom::backends::opencl
