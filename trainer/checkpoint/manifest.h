// The manifest of a checkpoint: its files with a checksum of every chunk. It is written last and makes the
// checkpoint whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hal/error.h"
#include "trainer/io/atomic_file.h"

namespace meshloom::trainer {

constexpr int kCheckpointFormat = 1;

struct Manifest {
  std::int64_t step = 0;
  std::vector<FileRecord> files;
};

// The checkpoint was written by another version of the program. Readers do not fall back to an older
// checkpoint then.
class VersionMismatch : public hal::Error {
 public:
  using Error::Error;
};

std::string to_json(const Manifest& manifest);
// Throws Error (where = `where`) for anything that to_json would not write. Throws VersionMismatch for
// another format number, unless the checksum shows that only the number is damaged, which is an Error.
Manifest parse_manifest(std::string_view json, const std::string& where);
// Throws Error naming the first file and byte range that differ from what the manifest says.
void verify_files(const std::string& directory, const Manifest& manifest);

}  // namespace meshloom::trainer
