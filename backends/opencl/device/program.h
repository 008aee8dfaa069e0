// Compiles kernels; binaries are stored on disk.
#pragma once

#include <string>

#include "backends/opencl/device/api.h"
#include "hal/cache/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

// No relaxed maths, which would make results depend on the driver.
inline constexpr const char* kBuildOptions = "-cl-std=CL1.2 -w";
// The same for Intel's compiler. A kernel with the define MOST_REGISTERS gets the larger of two register files, which leaves a
// core half as many hardware threads.
std::string intel_build_options(const hal::ExecutableSpec& spec);
// The OpenCL C that a driver compiles with these options.
std::string kernel_source(const hal::ExecutableSpec& spec);

class ClExecutable final : public hal::Executable {
 public:
  ClExecutable(hal::ExecutableSpec spec, Program program)
      : Executable(std::move(spec)), program_(std::move(program)) {}
  // A new kernel object. Arguments are state of the object, so every recorded dispatch has its own.
  Kernel kernel(const std::string& where) const;

 private:
  Program program_;
};

struct Compiler {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  const hal::DeviceInfo& info;
  const hal::DiskCache& cache;

  // The key of the kernel's cached binary: everything that it depends on.
  std::string cache_key(const hal::ExecutableSpec& spec) const;
  std::string build_options(const hal::ExecutableSpec& spec) const;
  // Throws Error with the kernel's name and the first lines of the driver's log. A cached binary without the
  // kernel, or with other arguments, is ignored.
  std::shared_ptr<ClExecutable> compile(const hal::ExecutableSpec& spec) const;
};

}  // namespace meshloom::backends::opencl
