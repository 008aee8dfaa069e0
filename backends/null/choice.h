// Which device a null device stands for.
#pragma once

#include <optional>
#include <string>

#include "hal/driver.h"

namespace meshloom::backends::null {

struct Choice {
  std::string name;                   // behind "null:"; "" = none
  std::string backend;                // whose driver is taken; "" = by the kind of the profile
  std::optional<hal::Driver> driver;  // the same for every profile

  // The device while it runs as a profile.
  hal::DeviceInfo on(const hal::Profile& profile) const;
  // What it is before another profile is laid over it.
  hal::DeviceInfo own() const;
};

// Throws Error for a name that is no backend, no driver and no file of a description.
Choice choice_of(const std::string& name);

}  // namespace meshloom::backends::null
