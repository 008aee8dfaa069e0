// Compiling kernels, with binaries kept on disk.
#pragma once

#include <string>

#include "backends/opencl/api.h"
#include "hal/disk_cache.h"
#include "hal/device.h"

namespace meshloom::backends::opencl {

class ClExecutable final : public hal::Executable {
 public:
  ClExecutable(hal::ExecutableSpec spec, Program program)
      : Executable(std::move(spec)), program_(std::move(program)) {}
  // A new kernel object: arguments are state of the object, so every recorded dispatch has its own.
  Kernel kernel(const std::string& where) const;

 private:
  Program program_;
};

struct Compiler {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  const hal::DeviceInfo& info;
  const hal::DiskCache& cache;

  // Throws Error with the kernel's name and the first lines of the driver's log.
  std::shared_ptr<ClExecutable> compile(const hal::ExecutableSpec& spec) const;
};

}  // namespace meshloom::backends::opencl
