#include "hal/cache/cache_folder.h"

#include <cstdlib>

namespace meshloom::hal {

std::filesystem::path cache_folder() {
  if (const char* folder = std::getenv("MESHLOOM_CACHE_DIR")) return folder;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder)
    return std::filesystem::path(folder) / "meshloom";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "meshloom";
  return {};
}

}  // namespace meshloom::hal
