// A list that keeps no command, for devices that run nothing.
#pragma once

#include "hal/device.h"

namespace meshloom::hal {

class NullCommandList : public CommandList {
 public:
  void dispatch(const std::shared_ptr<Executable>&, std::array<std::uint32_t, 3>, std::span<const Binding>,
                std::span<const Word>, const std::string&) override {}
  void copy(const Binding&, const Binding&, const std::string&) override {}
  void fill(const Binding&, Word, const std::string&) override {}
  void host_call(HostFunction, std::span<const Binding>, const std::string&) override {}
  void barrier() override {}
  void finish() override {}
};

}  // namespace meshloom::hal
