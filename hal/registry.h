// Finds and opens devices by id: "cpu", "vulkan:0", "opencl:1", "null", "null:opencl".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

// A driver that a loader would load into the process.
struct InstalledDriver {
  std::string name;  // "lvp_icd.x86_64"
  std::string file;  // by which the loader finds it
};

// A backend as the registry knows it.
struct BackendEntry {
  std::string name;  // "vulkan"
  // The devices that are found now, best first. Does not throw when a driver is missing: returns none, and
  // sets `why_none` to a sentence that says what to install or which variable to set.
  std::function<std::vector<DeviceInfo>(std::string& why_none)> enumerate;
  // Opens the index-th device of enumerate().
  std::function<std::unique_ptr<Device>(int index)> open;
  // The drivers that enumerate() makes a loader load; both are empty where the backend has none.
  std::function<std::vector<InstalledDriver>()> drivers;
  // Makes the loader load only these, which drivers() gave; to be called before the first enumerate(). What it returns must
  // live until that has returned.
  std::function<std::shared_ptr<void>(const std::vector<InstalledDriver>&)> use_only;
  // Opens the device of this name, which stands behind "BACKEND:" in its id. Empty = its devices have numbers only.
  std::function<std::unique_ptr<Device>(const std::string& name)> open_named = {};
  // Opens the index-th device of enumerate() to inspect its kernels (Registry::open_to_inspect). Empty = it cannot.
  std::function<std::unique_ptr<Device>(int index)> open_to_inspect = {};
  // Families of GPUs whose compiler is at hand or can be had without a driver, and what opens one of them to inspect kernels.
  std::vector<std::string> families = {};
  std::function<std::unique_ptr<Device>(const std::string& family)> open_family = {};
};

struct BackendDevices {
  std::string backend;
  std::vector<DeviceInfo> devices;
  std::string why_none;  // set when there are none
};

class Registry {
 public:
  void add(BackendEntry entry);
  // `function` is called with every device that open() opens, before another profile is laid over it.
  void when_opened(std::function<void(Device&)> function) { when_opened_ = std::move(function); }
  // A device that is lost while it opens is opened once more, after `note` was told.
  void when_lost(std::function<void(const std::string&)> note) { when_lost_ = std::move(note); }

  // Replaces every entry by what `change` makes of it.
  void transform(const std::function<BackendEntry(BackendEntry)>& change);
  // nullptr when there is none of this name.
  const BackendEntry* find(std::string_view backend) const;

  std::vector<std::string> backends() const;
  std::vector<std::string> families() const;  // "opencl:dg2", for open_to_inspect
  std::vector<BackendDevices> enumerate() const;
  // `id` is BACKEND, BACKEND:INDEX, or BACKEND:NAME where the backend has devices with names. Throws Error naming the backends
  // that were built and the devices that were found.
  std::unique_ptr<Device> open(std::string_view id) const;
  // Opens a device that compiles and runs nothing: info().computes is false, self-tests do not run, submit() throws Error, and
  // what load() gives is an InspectableExecutable (inspection.h). `id` may also be BACKEND:FAMILY. Throws Error as open() does,
  // and where the backend or the driver does not say what becomes of kernels.
  std::unique_ptr<Device> open_to_inspect(std::string_view id) const;
  // Also lays a shipped profile over the device; "" = its own.
  std::unique_ptr<Device> open(std::string_view id, std::string_view profile) const;

 private:
  struct Place {
    const BackendEntry* entry;
    std::string_view behind;  // the colon of the id
    std::string where;        // the id, for messages
  };
  Place place_of(std::string_view id) const;
  std::unique_ptr<Device> open(const Place& place) const;
  // Throws Error when there is no such device.
  int index_of(const Place& place) const;
  std::vector<std::string> found_ids() const;

  std::vector<BackendEntry> entries_;
  std::function<void(Device&)> when_opened_;
  std::function<void(const std::string&)> when_lost_;
};

}  // namespace meshloom::hal
