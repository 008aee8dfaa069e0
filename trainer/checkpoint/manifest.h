// The list of a checkpoint's files with a checksum of every chunk: written last, it makes the checkpoint whole.
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

// The checkpoint was written by another version of the program; no older one is tried in its place.
class VersionMismatch : public hal::Error {
 public:
  using Error::Error;
};

std::string to_json(const Manifest& manifest);
// Throws Error (where = `where`) for anything that to_json would not have written, and VersionMismatch for another format
// number, unless all the rest is of this format: then only the number is damaged, which is an Error.
Manifest parse_manifest(std::string_view json, const std::string& where);
// Throws Error naming the first file and byte range that differ from what the manifest says.
void verify_files(const std::string& directory, const Manifest& manifest);

}  // namespace meshloom::trainer
