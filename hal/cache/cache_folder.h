// Where things that can be made again are kept between runs.
#pragma once

#include <filesystem>

namespace meshloom::hal {

// MESHLOOM_CACHE_DIR, else XDG_CACHE_HOME/meshloom, else ~/.cache/meshloom; need not exist yet. Empty where
// nothing is to be kept: MESHLOOM_CACHE_DIR is set but empty, or none of them is known.
std::filesystem::path cache_folder();

}  // namespace meshloom::hal
