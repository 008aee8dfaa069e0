// A device that compiles kernels and runs none.
#pragma once

#include <memory>
#include <string>

#include "hal/device.h"

namespace meshloom::backends::simt {

// Its memory is counted and not there; lists take commands and keep none; submit(), write() and read() throw Error. What load()
// gives is the subclass's.
class CompileOnlyDevice : public hal::Device {
 public:
  std::unique_ptr<hal::CommandList> record(std::string name) final;
  void submit(hal::CommandList& list) final;
  void wait() final {}
  void write(hal::Buffer& buffer, std::int64_t offset, std::span<const std::byte> data) final;
  void read(const hal::Buffer& buffer, std::int64_t offset, std::span<std::byte> data) final;

 protected:
  // info().computes is false.
  explicit CompileOnlyDevice(hal::DeviceInfo info);
  std::unique_ptr<hal::Buffer> do_allocate(std::int64_t bytes, const std::string& label) final;

 private:
  [[noreturn]] void refuse(const std::string& what) const;
};

}  // namespace meshloom::backends::simt
