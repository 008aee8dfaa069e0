#include "backends/opencl/device/temporary_folder.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "hal/environment.h"
#include "hal/error.h"

namespace meshloom::backends::opencl {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& name) {
  std::string pattern = (hal::temporary_directory() / (name + "-XXXXXX")).string();
  if (!::mkdtemp(pattern.data()))
    throw hal::Error(pattern, "a temporary folder must be made", std::strerror(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& bytes) const {
  std::string path = path_ + "/" + name;
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())) || !file.flush())
    throw hal::Error("'" + path + "'", "must be a file that can be written", std::strerror(errno));
  return path;
}

std::string TemporaryFolder::read(const std::string& name) const {
  std::ifstream file(path_ + "/" + name, std::ios::binary);
  if (!file) throw hal::Error("'" + name + "'", "the program must write it", "no such file");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> TemporaryFolder::names(const std::string& ending) const {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.path().string().ends_with(ending)) all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace meshloom::backends::opencl
