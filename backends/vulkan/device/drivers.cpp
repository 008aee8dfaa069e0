#include "backends/vulkan/device/drivers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

namespace meshloom::backends::vulkan {
namespace {

std::string variable(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ':');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// The manifest, or those of a folder, in the order of their names.
void add(const std::string& path, std::vector<hal::InstalledDriver>& found) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else if (fs::exists(path, ignored)) {
    files.emplace_back(path);
  }
  for (const fs::path& file : files)
    if (std::none_of(found.begin(), found.end(),
                     [&](const hal::InstalledDriver& one) { return one.file == file; }))
      found.push_back({file.stem().string(), file.string()});
}

}  // namespace

// Source: docs/LoaderDriverInterface.md of the Vulkan loader, "Driver Discovery on Linux".
std::vector<hal::InstalledDriver> drivers() {
  std::vector<hal::InstalledDriver> found;
  const std::string named = variable("VK_DRIVER_FILES", variable("VK_ICD_FILENAMES"));
  if (!named.empty()) {
    for (const std::string& path : split(named)) add(path, found);
    return found;
  }
  const std::string home = variable("HOME");
  std::vector<std::string> folders = split(variable("VK_ADD_DRIVER_FILES"));
  const auto search = [&](const std::string& list) {
    for (const std::string& folder : split(list)) folders.push_back(folder + "/vulkan/icd.d");
  };
  search(variable("XDG_CONFIG_HOME", home.empty() ? "" : home + "/.config"));
  search(variable("XDG_CONFIG_DIRS", "/etc/xdg"));
  search("/etc");
  search(variable("XDG_DATA_HOME", home.empty() ? "" : home + "/.local/share"));
  search(variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
  for (const std::string& folder : folders) add(folder, found);
  return found;
}

std::shared_ptr<void> use_only(const std::vector<hal::InstalledDriver>& drivers) {
  std::string list;
  for (const hal::InstalledDriver& driver : drivers) list += (list.empty() ? "" : ":") + driver.file;
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) ::setenv(name, list.c_str(), 1);
  return nullptr;
}

}  // namespace meshloom::backends::vulkan
