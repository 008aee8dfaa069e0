#include "hal/registry.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "hal/suggest.h"

namespace meshloom::hal {

void Registry::add(BackendEntry entry) { entries_.push_back(std::move(entry)); }

void Registry::transform(const std::function<BackendEntry(BackendEntry)>& change) {
  for (BackendEntry& entry : entries_) entry = change(std::move(entry));
}

const BackendEntry* Registry::find(std::string_view backend) const {
  for (const BackendEntry& entry : entries_)
    if (entry.name == backend) return &entry;
  return nullptr;
}

std::vector<std::string> Registry::backends() const {
  std::vector<std::string> names;
  for (const BackendEntry& entry : entries_) names.push_back(entry.name);
  return names;
}

std::vector<BackendDevices> Registry::enumerate() const {
  std::vector<BackendDevices> all;
  for (const BackendEntry& entry : entries_) {
    BackendDevices found{entry.name, {}, {}};
    found.devices = entry.enumerate(found.why_none);
    all.push_back(std::move(found));
  }
  return all;
}

Registry::Place Registry::place_of(std::string_view id) const {
  const std::size_t colon = id.find(':');
  const std::string_view backend = id.substr(0, colon);
  const std::string where = "device '" + std::string(id) + "'";
  const BackendEntry* const entry = find(backend);
  if (!entry)
    throw Error(
        where,
        "the backend must be one of those built: " + join(backends()) + suggestion(backend, backends()),
        "'" + std::string(backend) + "'");
  return {entry, colon == std::string_view::npos ? "0" : id.substr(colon + 1), where};
}

std::unique_ptr<Device> Registry::open(std::string_view id) const {
  const Place place = place_of(id);
  const auto opened = [&] {
    std::unique_ptr<Device> device = open(place);
    if (when_opened_) when_opened_(*device);
    return device;
  };
  try {
    return opened();
  } catch (const DeviceLost& lost) {
    if (!when_lost_) throw;
    when_lost_(std::string("the device was lost (") + lost.what() + ") while it opened; it is opened again");
  }
  return opened();
}

std::unique_ptr<Device> Registry::open_to_inspect(std::string_view id) const {
  const Place place = place_of(id);
  const BackendEntry& entry = *place.entry;
  const std::string behind(place.behind);
  if (entry.open_family &&
      std::find(entry.families.begin(), entry.families.end(), behind) != entry.families.end())
    return entry.open_family(behind);
  if (entry.open_to_inspect) return entry.open_to_inspect(index_of(place));
  std::string able;
  for (const BackendEntry& one : entries_)
    if (one.open_to_inspect) able += (able.empty() ? "devices of " : ", ") + one.name;
  if (const std::vector<std::string> known = families(); !known.empty())
    able += (able.empty() ? "" : ", and for ") + join(known) + suggestion(id, known);
  throw Error(place.where,
              "kernels can be inspected on " + (able.empty() ? "no backend that was built" : able),
              "'" + std::string(id) + "'");
}

std::vector<std::string> Registry::families() const {
  std::vector<std::string> ids;
  for (const BackendEntry& entry : entries_)
    for (const std::string& family : entry.families) ids.push_back(entry.name + ":" + family);
  return ids;
}

std::vector<std::string> Registry::found_ids() const {
  std::vector<std::string> ids;
  for (const BackendDevices& found : enumerate())
    for (const DeviceInfo& device : found.devices) ids.push_back(device.id);
  return ids;
}

int Registry::index_of(const Place& place) const {
  int index = 0;
  const std::string_view behind = place.behind;
  const auto [end, error] = std::from_chars(behind.data(), behind.data() + behind.size(), index);
  if (error != std::errc{} || end != behind.data() + behind.size() || index < 0)
    throw Error(place.where, "must be BACKEND or BACKEND:INDEX",
                "'" + std::string(behind) + "' as the index");
  std::string why_none;
  const std::vector<DeviceInfo> devices = place.entry->enumerate(why_none);
  if (devices.empty())
    throw Error(place.where, "needs a device of this backend: " + why_none, "only " + join(found_ids()));
  if (index >= static_cast<int>(devices.size()))
    throw Error(place.where, "the index must be below the number of devices",
                std::to_string(devices.size()) + " device(s) of backend " + place.entry->name +
                    "; there are " + join(found_ids()));
  return index;
}

std::unique_ptr<Device> Registry::open(const Place& place) const {
  const bool is_index =
      !place.behind.empty() && place.behind.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_index && !place.behind.empty() && place.entry->open_named)
    return place.entry->open_named(std::string(place.behind));
  return place.entry->open(index_of(place));
}

std::unique_ptr<Device> Registry::open(std::string_view id, std::string_view profile) const {
  std::unique_ptr<Device> device = open(id);
  if (!profile.empty()) device->run_as(find_profile(profile));
  return device;
}

}  // namespace meshloom::hal
