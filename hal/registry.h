// Finds and opens devices by id: "cpu", "vulkan:0", "opencl:1", "null".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

// What a backend offers to the registry.
struct BackendEntry {
  std::string name;  // "vulkan"
  // Devices found now, best first. Never throws for an absent driver: gives none and fills `why_none` with
  // a sentence that says what to install or which variable to set.
  std::function<std::vector<DeviceInfo>(std::string& why_none)> list;
  // Opens the index-th device of list().
  std::function<std::unique_ptr<Device>(int index)> open;
};

struct Listing {
  std::string backend;
  std::vector<DeviceInfo> devices;
  std::string why_none;  // set when there are none
};

class Registry {
 public:
  void add(BackendEntry entry);
  // Called with every device that open() is about to hand out, before it runs as anything but itself.
  void when_opened(std::function<void(Device&)> function) { when_opened_ = std::move(function); }

  std::vector<std::string> backends() const;
  std::vector<Listing> list() const;
  // `id` is BACKEND or BACKEND:INDEX. Throws Error naming the backends built and the devices found.
  std::unique_ptr<Device> open(std::string_view id) const;
  // The same, running as a shipped profile ("" = its own).
  std::unique_ptr<Device> open(std::string_view id, std::string_view profile) const;

 private:
  std::vector<BackendEntry> entries_;
  std::function<void(Device&)> when_opened_;
};

}  // namespace meshloom::hal
