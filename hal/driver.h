// Drivers as plain data: what the driver of a chip lets kernels use, beside the chip's profile. The device null is planned
// for with them, so that its plans are those of the device that it stands for.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

struct Driver {
  std::string name;  // "vulkan-nvidia"; of a description of one device its id there
  // The shipped profiles of the chips that it drives; none = it is chosen by its name only, or it stands for all chips
  // that have no driver of their own (kGenericDriver).
  std::vector<std::string> profiles;
  // What programs are planned for. `name` is "" where it is the product of the profile. Limits::memory_bytes is 0 where the
  // memory is the profile's; `profile.name` is "" where the profile is chosen beside the driver.
  DeviceInfo device;
  double allocation_of_memory = 0;  // the largest allocation as a part of the memory; 0 = it is a number
  std::map<std::string, std::string> sources;  // field -> source of the number
};

// A driver with this name, behind its backend's, stands for every chip without one: "vulkan-generic".
inline constexpr std::string_view kGenericDriver = "generic";

// Parses one file of hal/drivers/, or a description that describe_device() wrote. Throws Error for a value without a source
// and for unknown fields; `where` names the file in errors.
Driver parse_driver(std::string_view json, const std::string& where);

// A device as a driver file: all that planning depends on, its own profile included.
std::string describe_device(const DeviceInfo& device);

// The shipped drivers of hal/drivers/, sorted by name.
const std::vector<Driver>& shipped_drivers();
// The shipped driver with this name; nullptr = there is none.
const Driver* find_driver(std::string_view name);
// The shipped driver of a chip on a backend, or else the backend's generic one. Throws Error when there is neither.
const Driver& driver_of(std::string_view backend, std::string_view profile);

// The device that this driver makes of a chip: computes nothing, but has its limits and features.
DeviceInfo planned_device(const Driver& driver, const Profile& profile);

}  // namespace meshloom::hal
