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

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The shipped profile of the family's card with the most cores.
const hal::Profile& card_of(const std::string& family) {
  const hal::Profile* card = nullptr;
  for (const hal::Profile& profile : hal::shipped_profiles())
    if (profile.isa == family && (!card || profile.cores > card->cores)) card = &profile;
  if (!card) throw hal::Error("opencl:" + family, "must have a card with a shipped profile", "none");
  return *card;
}

class OfflineDevice final : public simt::CompileOnlyDevice {
 public:
  explicit OfflineDevice(const std::string& family)
      : CompileOnlyDevice(describe(family, card_of(family))),
        family_(family),
        compiler_(has(nvidia_families(), family) ? nvidia_compiler(family) : intel_compiler(family)) {
    info_.driver = compiler_->version();
  }

  // Another card of the family may have another driver's facts.
  void run_as(const hal::Profile& profile) override {
    if (profile.isa == family_) {
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
  static hal::DeviceInfo describe(const std::string& family, const hal::Profile& profile) {
    hal::DeviceInfo info = hal::planned_device(hal::driver_of("opencl", profile.name), profile);
    info.id = "opencl:" + family;
    return info;
  }

  std::string family_;
  std::shared_ptr<const OfflineCompiler> compiler_;
  std::map<std::string, std::shared_ptr<OfflineExecutable>> executables_;  // by ExecutableSpec::key()
};

}  // namespace

std::string OfflineCompiler::where(const hal::ExecutableSpec& spec) const {
  return "kernel '" + spec.kernel + "' for " + family_;
}

void OfflineCompiler::refuse(const hal::ExecutableSpec& spec, const std::string& output) const {
  constexpr std::size_t kMaxLog = 600;
  throw hal::Error(where(spec), "must compile by " + version() + " as '" + spec.key() + "'",
                   output.substr(0, kMaxLog));
}

std::vector<std::string> families() {
  std::vector<std::string> all = intel_families();
  for (std::string& name : nvidia_families()) all.push_back(std::move(name));
  return all;
}

std::unique_ptr<hal::Device> open_family(const std::string& name) {
  if (!has(families(), name))
    throw hal::Error("opencl:" + name, "must be a family that kernels can be compiled for", "another");
  return std::make_unique<OfflineDevice>(name);
}

}  // namespace meshloom::backends::opencl
