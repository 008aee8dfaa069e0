#include "trainer/rules/product.h"

namespace meshloom::trainer {

bool poses_as_gpu(const hal::DeviceInfo& device) { return device.is_cpu && device.backend != "cpu"; }

std::string product_text(const hal::DeviceInfo& device) {
  return device.id + (device.name == device.id ? "" : ", " + device.name);
}

std::string product_note(const std::string& hardware, const hal::DeviceInfo& device) {
  if (!device.computes) return {};  // it stands for every product
  const std::string plain = device.backend + "-", as = plain + "as-";
  const std::string here = product_text(device) + ", driver " + device.driver +
                           (poses_as_gpu(device) ? ", which runs on the CPU and is no GPU" : "");
  if (hardware.starts_with(plain) && !hardware.starts_with(as)) {
    const std::string named = hardware.substr(plain.size(), hardware.rfind('-') - plain.size());
    if (named != device.profile.name)
      return "hardware '" + hardware + "' names a product that is not present; the device is " + here +
             "; '" + as + hardware.substr(plain.size()) + "' names this profile over that device";
  }
  return poses_as_gpu(device) ? "the device is " + here : std::string();
}

}  // namespace meshloom::trainer
