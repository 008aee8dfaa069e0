// Files for programs and libraries outside of this one.
#pragma once

#include <string>
#include <vector>

namespace meshloom::backends::opencl {

// A folder of its own, which nobody else may read and which is removed with all that is in it.
class TemporaryFolder {
 public:
  // `name` begins the folder's name.
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const;  // the file's path
  std::string read(const std::string& name) const;  // throws Error where there is none
  // The names of the files that end so, in order.
  std::vector<std::string> names(const std::string& ending) const;

 private:
  std::string path_;
};

}  // namespace meshloom::backends::opencl
