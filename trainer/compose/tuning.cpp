#include "trainer/compose/tuning.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hal/cache_folder.h"
#include "hal/error.h"
#include "kernel_sources.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "meshloom-tuning/2";

// FNV-1a: names files, guards nothing (the key is in the file too).
std::string digest(const std::map<std::string, std::string>& key) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& [name, value] : key)
    for (char c : name + "=" + value + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::ostringstream text;
  text << std::hex << hash;
  return text.str();
}

}  // namespace

std::string call_text(std::string_view op, const std::vector<kernels::TensorType>& inputs,
                      const kernels::Attrs& attrs) {
  std::string text(op);
  for (std::size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : " ") + to_string(inputs[i]);
  return attrs.items().empty() ? text : text + " " + to_string(attrs);
}

// MESHLOOM_KERNEL_SOURCES changes with any file of kernels/ or backends/.
Tuning::Tuning(const hal::DeviceInfo& device)
    : key_{{"backend", device.backend},
           {"device", device.name},
           {"driver", device.driver},
           {"profile", device.profile.name},
           {"kernels", MESHLOOM_KERNEL_SOURCES}} {}

std::filesystem::path Tuning::path() const {
  const std::filesystem::path folder = hal::cache_folder();
  if (folder.empty())
    throw Error("tuning", "needs a cache folder: MESHLOOM_CACHE_DIR must name one, or HOME be set", "none");
  return folder / "tuning" / (key_.at("backend") + "-" + digest(key_) + ".json");
}

std::optional<Tuning> Tuning::load(const hal::DeviceInfo& device) {
  Tuning tuning(device);
  const std::filesystem::path path = tuning.path();
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  try {
    const Json json = Json::parse(file);
    if (json.at("schema") != kSchema)
      throw Error("'" + path.string() + "'", std::string("must be ") + kSchema);
    for (const auto& [name, value] : tuning.key_)
      if (json.at("key").at(name) != value) return std::nullopt;  // two keys of one digest
    for (const auto& [call, item] : json.at("calls").items())
      tuning.calls_[call] = {item.at("variant").get<std::string>(),
                             item.at("params").get<std::map<std::string, std::int64_t>>(), item.at("seconds").get<double>(),
                             item.at("standard").get<std::string>(),
                             item.at("standard_seconds").get<double>()};
  } catch (const Json::exception& error) {
    throw Error("'" + path.string() + "'",
                "must be a tuning file (`meshloom bench tune` writes it anew once it is removed)",
                error.what());
  }
  return tuning;
}

void Tuning::save() const {
  Json json;
  json["schema"] = kSchema;
  json["key"] = key_;
  json["calls"] = Json::object();
  for (const auto& [call, tuned] : calls_)
    json["calls"][call] = {{"variant", tuned.variant},
                           {"params", tuned.params},
                           {"seconds", tuned.seconds},
                           {"standard", tuned.standard},
                           {"standard_seconds", tuned.standard_seconds}};
  const std::filesystem::path target = path();
  // Whole or not at all: another run may be reading it.
  std::filesystem::path part = target;
  part += ".part";
  std::error_code error;
  std::filesystem::create_directories(target.parent_path(), error);
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << json.dump(1) << "\n";
    file.flush();
    if (!file) throw Error("'" + part.string() + "'", "must be writable");
  }
  std::filesystem::rename(part, target, error);
  if (error) throw Error("'" + target.string() + "'", "must be writable", error.message());
}

const TunedCall* Tuning::find(const std::string& call) const {
  const auto it = calls_.find(call);
  return it == calls_.end() ? nullptr : &it->second;
}

}  // namespace meshloom::trainer
