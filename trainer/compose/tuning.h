// What tuning found out: for each call on one device the variant, and its parameters, measured fastest. Kept in the cache
// folder, one file per device, driver and state of the kernels' sources; used where a kernel rule names the
// variant "tuned".
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"
#include "kernels/program/types.h"

namespace meshloom::trainer {

// The word that a kernel rule says for "as measured".
constexpr std::string_view kTunedVariant = "tuned";

// "matmul f32(128, 576), f32(49152, 576) {trans_b=true}": equal calls have equal texts, and all that `fit`
// may depend on is in them.
std::string call_text(std::string_view op, const std::vector<kernels::TensorType>& inputs,
                      const kernels::Attrs& attrs);

struct TunedCall {
  std::string variant;
  std::map<std::string, std::int64_t> params;  // of the variant
  double seconds = 0;    // of one call
  std::string standard;  // the variant without tuning
  double standard_seconds = 0;
};

class Tuning {
 public:
  // An empty one for this device as it is now.
  explicit Tuning(const hal::DeviceInfo& device);
  // What was saved for this very device, driver, profile and kernels; nothing when there is none. Throws
  // Error on a file that cannot be read or is damaged.
  static std::optional<Tuning> load(const hal::DeviceInfo& device);

  // In the cache folder; throws Error when there is no such folder or it cannot be written.
  void save() const;
  std::filesystem::path path() const;

  const TunedCall* find(const std::string& call) const;
  void set(const std::string& call, TunedCall tuned) { calls_[call] = std::move(tuned); }
  const std::map<std::string, TunedCall>& calls() const { return calls_; }

 private:
  std::map<std::string, std::string> key_;  // device, backend, driver, profile, kernels
  std::map<std::string, TunedCall> calls_;
};

}  // namespace meshloom::trainer
