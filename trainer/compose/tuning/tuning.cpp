#include "trainer/compose/tuning/tuning.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "embedded_tuned.h"
#include "hal/cache/disk_cache.h"
#include "hal/error.h"
#include "kernel_sources.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSchema = "meshloom-tuning/3";

// FNV-1a. It only names files; the file itself contains the whole key.
std::string digest(const std::map<std::string, std::string>& key) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& [name, value] : key)
    for (char c : name + "=" + value + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::ostringstream text;
  text << std::hex << hash;
  return text.str();
}

std::string kind_of(const hal::DeviceInfo& device) {
  return std::string(hal::to_string(device.profile.kind)) + (device.is_cpu ? " on a CPU" : "");
}

// A call without the sizes of its dimensions, and these sizes.
struct Shape {
  std::string rest;
  std::vector<double> dims;
};
Shape shape_of(const std::string& call) {
  Shape shape;
  const std::size_t attributes = std::min(call.find(" {"), call.size());
  int open = 0;
  for (std::size_t i = 0; i < attributes; ++i) {
    open += call[i] == '(' ? 1 : call[i] == ')' ? -1 : 0;
    if (open == 0 || !std::isdigit(static_cast<unsigned char>(call[i]))) {
      shape.rest += call[i];
      continue;
    }
    double length = 0;
    for (; i < attributes && std::isdigit(static_cast<unsigned char>(call[i])); ++i)
      length = 10 * length + (call[i] - '0');
    --i;
    shape.dims.push_back(std::max(1.0, length));
    shape.rest += '#';
  }
  shape.rest += call.substr(attributes);
  return shape;
}

}  // namespace

// MESHLOOM_KERNEL_SOURCES changes with any file of kernels/ or backends/.
Tuning::Tuning(const hal::DeviceInfo& device)
    : key_{{"backend", device.backend},         {"device", device.name},          {"vendor", device.vendor},
           {"driver", device.driver},           {"profile", device.profile.name}, {"kind", kind_of(device)},
           {"kernels", MESHLOOM_KERNEL_SOURCES}} {}

std::filesystem::path Tuning::folder(const char* name) {
  const std::filesystem::path folder = hal::cache_folder();
  if (folder.empty())
    throw Error(name, "needs a cache folder: MESHLOOM_CACHE_DIR must name one, or HOME must be set", "none");
  return folder / name;
}

std::string Tuning::file_name(const std::map<std::string, std::string>& key) {
  return key.at("backend") + "-" + digest(key) + ".json";
}

std::filesystem::path Tuning::path() const { return folder("tuning") / file_name(key_); }

std::optional<Tuning> Tuning::load(const hal::DeviceInfo& device, std::string* note) {
  return Tuning(device).saved(note);
}

std::optional<Tuning> Tuning::load_from(const std::filesystem::path& file,
                                        const std::map<std::string, std::string>& key) {
  if (std::error_code ignored; !std::filesystem::exists(file, ignored)) return std::nullopt;
  const std::string where = "'" + file.string() + "'";
  Tuning tuning = parse(read_file(file.string(), where), where);
  if (tuning.key_ != key) return std::nullopt;  // also another key with the same hash
  return tuning;
}

std::optional<Tuning> Tuning::saved(std::string* note) const {
  const std::filesystem::path path = this->path();
  try {
    return load_from(path, key_);
  } catch (const hal::Error& error) {
    if (note) *note = std::string("the tuning file cannot be read and is ignored; ") + error.what();
    return std::nullopt;
  }
}

Tuning Tuning::parse(std::string_view text, const std::string& where) {
  constexpr int kDepth = 5;
  const auto json = parse_json(text, where, "the file", kDepth);
  Tuning tuning;
  try {
    if (json.at("schema") != kSchema)
      throw Error(where, std::string("must be ") + kSchema + ", as `meshloom bench tune` writes it",
                  shown_json(json.at("schema")));
    tuning.key_ = json.at("key").get<std::map<std::string, std::string>>();
    for (const auto& [call, item] : json.at("calls").items())
      tuning.calls_[call] = {item.at("variant").get<std::string>(),
                             item.at("params").get<std::map<std::string, std::int64_t>>(),
                             item.at("seconds").get<double>(), item.at("standard").get<std::string>(),
                             item.at("standard_seconds").get<double>()};
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, "must be a tuning file, as `meshloom bench tune` writes it", error.what());
  }
  return tuning;
}

std::string Tuning::to_json() const {
  OrderedJson json;
  json["schema"] = kSchema;
  json["key"] = key_;
  json["calls"] = OrderedJson::object();
  for (const auto& [call, tuned] : calls_)
    json["calls"][call] = {{"variant", tuned.variant},
                           {"params", tuned.params},
                           {"seconds", tuned.seconds},
                           {"standard", tuned.standard},
                           {"standard_seconds", tuned.standard_seconds}};
  return json.dump(1) + "\n";
}

void Tuning::save() {
  const std::filesystem::path target = path();
  std::error_code ignored;
  std::filesystem::create_directories(target.parent_path(), ignored);
  // The lock keeps other processes from saving between reading and writing. On a file system without locks a
  // result may get lost, but never the file.
  const int lock =
      ::open((target.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  while (lock >= 0 && ::flock(lock, LOCK_EX) != 0 && errno == EINTR) {
  }
  const std::unique_ptr<const int, void (*)(const int*)> unlock(&lock, [](const int* fd) {
    if (*fd >= 0) ::close(*fd);
  });
  if (const std::optional<Tuning> stored = saved(nullptr))
    for (const auto& [call, tuned] : stored->calls_)
      if (!unsaved_.count(call)) calls_[call] = tuned;
  save_as(target);
  unsaved_.clear();
}

void Tuning::save_as(const std::filesystem::path& target) const {
  std::error_code ignored;
  if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path(), ignored);
  write_file(target.string(), to_json());
}

int Tuning::similarity(const hal::DeviceInfo& device) const {
  const auto is = [&](const char* name, const std::string& value) {
    const auto it = key_.find(name);
    return it != key_.end() && it->second == value;
  };
  if (!is("backend", device.backend) || !is("kind", kind_of(device))) return 0;
  return 1 + (is("driver", device.driver) ? 1 : 0) + (is("vendor", device.vendor) ? 2 : 0) +
         (is("device", device.name) ? 4 : 0);
}

const TunedCall* Tuning::find(const std::string& call) const {
  const auto it = calls_.find(call);
  return it == calls_.end() ? nullptr : &it->second;
}

const TunedCall* Tuning::nearest(const std::string& call) const {
  if (const TunedCall* exact = find(call)) return exact;
  const Shape wanted = shape_of(call);
  const TunedCall* best = nullptr;
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& [name, tuned] : calls_) {
    const Shape shape = shape_of(name);
    if (shape.rest != wanted.rest) continue;
    double distance = 0, farthest = 0;
    for (std::size_t i = 0; i < shape.dims.size(); ++i) {
      const double apart = std::abs(std::log2(shape.dims[i] / wanted.dims[i]));
      distance += apart;
      farthest = std::max(farthest, apart);
    }
    if (farthest > 1 || distance >= nearest) continue;
    nearest = distance;
    best = &tuned;
  }
  return best;
}

const Tuning* shipped_tuning(const hal::DeviceInfo& device) {
  static const std::vector<Tuning> all = [] {
    std::vector<Tuning> list;
    for (const embedded::File& file : embedded::tuned())
      list.push_back(Tuning::parse(file.text, "tuning '" + std::string(file.name) + "' in the program"));
    return list;
  }();
  const Tuning* best = nullptr;
  for (const Tuning& tuning : all)
    if (tuning.similarity(device) > (best ? best->similarity(device) : 0)) best = &tuning;
  return best;
}

TuningLookup::TuningLookup(const hal::DeviceInfo& device, bool only_own, std::shared_ptr<const Tuning> own)
    : own_(std::move(own)) {
  if (!own_ && (!only_own || !hal::cache_folder().empty()))
    if (std::optional<Tuning> saved = Tuning::load(device, &note_))
      own_ = std::make_shared<const Tuning>(*std::move(saved));
  if (!only_own) shipped_ = shipped_tuning(device);
}

const TunedCall* TuningLookup::find(const std::string& call) const {
  if (own_)
    if (const TunedCall* tuned = own_->nearest(call)) return tuned;
  return shipped_ ? shipped_->nearest(call) : nullptr;
}

}  // namespace meshloom::trainer
