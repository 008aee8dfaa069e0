// What tuning found out: for each call on one device the variant, and its parameters, measured fastest. Kept in the cache
// folder, one file per device, driver and state of the kernels' sources; used where a kernel rule names the
// variant "tuned". The program carries such files of some devices (trainer/compose/tuned/) for those that were never
// tuned themselves.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "hal/device.h"

namespace meshloom::trainer {

// The word that a kernel rule says for "as measured".
constexpr std::string_view kTunedVariant = "tuned";

struct TunedCall {
  std::string variant;
  std::map<std::string, std::int64_t> params;  // of the variant
  double seconds = 0;                          // of one call
  std::string standard;                        // the variant without tuning
  double standard_seconds = 0;
};

class Tuning {
 public:
  // An empty one for this device as it is now.
  explicit Tuning(const hal::DeviceInfo& device);
  // What was saved for this very device, driver, profile and kernels; nothing when there is none, or when the file cannot
  // be read or is damaged, which `note` then says.
  static std::optional<Tuning> load(const hal::DeviceInfo& device, std::string* note = nullptr);

  // Throws Error (where = `where`) on anything that to_json() would not have written.
  static Tuning parse(std::string_view json, const std::string& where);
  std::string to_json() const;

  // In the cache folder, together with what other processes have saved there meanwhile: of a call that both have tuned
  // since they looked, this one counts. Throws Error when there is no such folder or it cannot be written.
  void save();
  std::filesystem::path path() const;
  // Elsewhere, whole or not at all; throws Error when it cannot be written.
  void save_as(const std::filesystem::path& target) const;

  // How much the device it was measured on is like this one: 0 where what is good there says nothing here (another
  // backend or kind of profile, a CPU's driver for a GPU's), else more for the same driver, vendor and device.
  int likeness(const hal::DeviceInfo& device) const;
  const std::map<std::string, std::string>& key() const { return key_; }

  const TunedCall* find(const std::string& call) const;
  // This call, else the one most like it: op, dtypes, ranks and attributes are the same, and no dimension is more
  // than twice as long as the other's. nullptr when there is none.
  const TunedCall* nearest(const std::string& call) const;
  void set(const std::string& call, TunedCall tuned) {
    calls_[call] = std::move(tuned);
    unsaved_.insert(call);
  }
  const std::map<std::string, TunedCall>& calls() const { return calls_; }

 private:
  Tuning() = default;
  // What the file of this key holds; see load().
  std::optional<Tuning> saved(std::string* note) const;

  std::map<std::string, std::string> key_;  // device, vendor, backend, driver, profile, kind, kernels
  std::map<std::string, TunedCall> calls_;
  std::set<std::string> unsaved_;
};

// The one of the tunings in the program whose device is most like this one; nullptr when none is like it at all.
const Tuning* shipped_tuning(const hal::DeviceInfo& device);

// What to go by on a device: its own tuning and, where that says nothing, the nearest device's.
class TuningLookup {
 public:
  explicit TuningLookup(const hal::DeviceInfo& device);
  const std::string& note() const {
    return note_;
  }  // what was wrong with the device's own tuning; "" = nothing
  bool empty() const { return !own_ && !shipped_; }
  const TunedCall* find(const std::string& call) const;

 private:
  std::string note_;
  std::optional<Tuning> own_;
  const Tuning* shipped_ = nullptr;
};

}  // namespace meshloom::trainer
