// The results of tuning: for each call on one device, the variant and the parameters that were measured
// fastest. They are stored in the cache folder, one file per device, driver and version of the kernels'
// sources, and used when a kernel rule names the variant "tuned". The program ships such files of some
// devices (trainer/compose/tuning/tuned/) for devices that were never tuned.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "hal/device.h"

namespace meshloom::trainer {

// The name of a variant with which a kernel rule asks for the tuned one.
constexpr std::string_view kTunedVariant = "tuned";
// The name with which it asks for what was measured on this very device, where something was.
constexpr std::string_view kMeasuredVariant = "measured";

struct TunedCall {
  std::string variant;
  std::map<std::string, std::int64_t> params;  // of the variant
  double seconds = 0;                          // of one call with them
  std::string standard;                        // the variant that is chosen without tuning
  double standard_seconds = 0;
};

class Tuning {
 public:
  // No results yet, for this device.
  explicit Tuning(const hal::DeviceInfo& device);
  // The results that were saved for this very device, driver, profile and kernels. Nothing when there are
  // none, or when the file is unreadable or damaged; `note` then says so.
  static std::optional<Tuning> load(const hal::DeviceInfo& device, std::string* note = nullptr);
  // Those that were saved to `file`, where they are of this very device, driver, profile and kernels. Throws Error when the
  // file is unreadable or damaged.
  static std::optional<Tuning> load_from(const std::filesystem::path& file, const hal::DeviceInfo& device) {
    return load_from(file, Tuning(device).key_);
  }

  // Throws Error (where = `where`) on anything that to_json() would not write.
  static Tuning parse(std::string_view json, const std::string& where);
  std::string to_json() const;

  // Saves to the cache folder and merges what other processes have saved there meanwhile; for calls that both
  // have tuned, this process wins. Throws Error when there is no such folder or it cannot be written.
  void save();
  std::filesystem::path path() const;
  // Saves to another file, atomically. Throws Error when it cannot be written.
  void save_as(const std::filesystem::path& target) const;

  // How similar the measured device is to this one: 0 when its results say nothing about this one (another
  // backend or kind of profile, a CPU's driver instead of a GPU's), otherwise more for the same driver,
  // vendor and device.
  int similarity(const hal::DeviceInfo& device) const;
  const std::map<std::string, std::string>& key() const { return key_; }
  // A folder in the cache folder, and the name of a file there for such a key. Throws Error without a cache folder.
  static std::filesystem::path folder(const char* name);
  static std::string file_name(const std::map<std::string, std::string>& key);

  const TunedCall* find(const std::string& call) const;
  // This call, or else the most similar one, whose op, dtypes, ranks and attributes are equal and whose
  // dimensions are all within a factor of two. nullptr when there is none.
  const TunedCall* nearest(const std::string& call) const;
  void set(const std::string& call, TunedCall tuned) {
    calls_[call] = std::move(tuned);
    unsaved_.insert(call);
  }
  const std::map<std::string, TunedCall>& calls() const { return calls_; }

 private:
  Tuning() = default;
  static std::optional<Tuning> load_from(const std::filesystem::path& file,
                                         const std::map<std::string, std::string>& key);
  // The contents of the file for this key; see load().
  std::optional<Tuning> saved(std::string* note) const;

  std::map<std::string, std::string> key_;  // device, vendor, backend, driver, profile, kind, kernels
  std::map<std::string, TunedCall> calls_;
  std::set<std::string> unsaved_;
};

// The shipped tuning whose device is most similar to this one; nullptr when none is similar at all.
const Tuning* shipped_tuning(const hal::DeviceInfo& device);

// The tuning to use on a device: its own, and unless only that is asked for, for calls that it lacks, that of the most
// similar shipped device.
class TuningLookup {
 public:
  // `own` = nullptr: what the cache folder holds for the device.
  explicit TuningLookup(const hal::DeviceInfo& device, bool only_own = false,
                        std::shared_ptr<const Tuning> own = nullptr);
  // What was wrong with the device's own tuning; "" = nothing.
  const std::string& note() const { return note_; }
  bool empty() const { return (!own_ || own_->calls().empty()) && !shipped_; }
  const TunedCall* find(const std::string& call) const;

 private:
  std::string note_;
  std::shared_ptr<const Tuning> own_;
  const Tuning* shipped_ = nullptr;
};

}  // namespace meshloom::trainer
