#include "backends/opencl/device/drivers.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "backends/opencl/device/temporary_folder.h"

namespace meshloom::backends::opencl {
namespace fs = std::filesystem;

// Source: the README files of the loaders of Khronos and of ocl-icd.
std::vector<hal::InstalledDriver> drivers() {
  const char* named = std::getenv("OCL_ICD_VENDORS");
  const fs::path path = named && *named ? named : "/etc/OpenCL/vendors";
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (entry.path().extension() == ".icd") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else if (named && *named) {
    files.push_back(path);  // a file of this kind, or a library
  }
  std::vector<hal::InstalledDriver> found;
  for (const fs::path& file : files) found.push_back({file.stem().string(), file.string()});
  return found;
}

// The loaders take one folder, or one driver.
std::shared_ptr<void> use_only(const std::vector<hal::InstalledDriver>& drivers) {
  if (drivers.size() == 1 && !fs::is_regular_file(drivers[0].file)) {  // a library by its name
    ::setenv("OCL_ICD_VENDORS", drivers[0].file.c_str(), 1);
    return nullptr;
  }
  auto folder = std::make_shared<TemporaryFolder>("meshloom-drivers");
  std::error_code ignored;
  for (const hal::InstalledDriver& driver : drivers)
    fs::copy_file(driver.file, folder->path() / fs::path(driver.file).filename(), ignored);
  ::setenv("OCL_ICD_VENDORS", folder->path().c_str(), 1);
  return folder;
}

}  // namespace meshloom::backends::opencl
