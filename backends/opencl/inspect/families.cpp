#include "backends/opencl/inspect/families.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "backends/opencl/device/program.h"
#include "backends/simt/inspect/compile_only_device.h"
#include "hal/driver.h"

namespace meshloom::backends::opencl {
namespace {

class OfflineExecutable final : public hal::Executable, public hal::InspectableExecutable {
 public:
  OfflineExecutable(hal::ExecutableSpec spec, std::shared_ptr<const OfflineCompiler> compiler)
      : Executable(std::move(spec)), compiler_(std::move(compiler)) {}

  hal::Inspection inspect(std::span<const hal::Binding>) const override {
    if (!found_) {
      const std::string source = kernel_source(spec());
      found_ = compiler_->compile(spec(), source);
      found_->files.insert(found_->files.begin(), {".cl", source});
    }
    return *found_;
  }

 private:
  std::shared_ptr<const OfflineCompiler> compiler_;
  mutable std::optional<hal::Inspection> found_;  // by the first inspection: calls share kernels
};

class OfflineDevice final : public simt::CompileOnlyDevice {
 public:
  explicit OfflineDevice(const Family& family)
      : CompileOnlyDevice(describe(family, hal::find_profile(family.profiles.front()))),
        family_(family),
        compiler_(family.name.starts_with("sm_") ? nvidia_compiler(family.name)
                                                 : intel_compiler(family.name)) {
    info_.driver = compiler_->version();
  }

  // Another card of the family may have another driver's facts.
  void run_as(const hal::Profile& profile) override {
    const std::vector<std::string>& own = family_.profiles;
    if (std::find(own.begin(), own.end(), profile.name) != own.end()) {
      info_ = describe(family_, profile);
      info_.driver = compiler_->version();
    }
    Device::run_as(profile);
  }

  std::shared_ptr<hal::Executable> load(const hal::ExecutableSpec& spec) override {
    std::shared_ptr<OfflineExecutable>& slot = executables_[spec.key()];
    if (!slot) slot = std::make_shared<OfflineExecutable>(spec, compiler_);
    return slot;
  }

 private:
  // As the card's driver would describe it.
  static hal::DeviceInfo describe(const Family& family, const hal::Profile& profile) {
    hal::DeviceInfo info = hal::planned_device(hal::driver_of("opencl", profile.name), profile);
    info.id = "opencl:" + family.name;
    return info;
  }

  Family family_;
  std::shared_ptr<const OfflineCompiler> compiler_;
  std::map<std::string, std::shared_ptr<OfflineExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all{
#include "backends/opencl/inspect/families.inc"
  };
  return all;
}

std::unique_ptr<hal::Device> open_family(const std::string& name) {
  for (const Family& family : families())
    if (family.name == name) return std::make_unique<OfflineDevice>(family);
  throw hal::Error("opencl:" + name, "must be a family that kernels can be compiled for", "another");
}

}  // namespace meshloom::backends::opencl
