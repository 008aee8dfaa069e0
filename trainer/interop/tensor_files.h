// The tensors of a Hugging Face directory: one model.safetensors, shards under model.safetensors.index.json,
// or shards without an index, model-0000N-of-0000M.safetensors, all M of which are there.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/io/safetensors.h"

namespace meshloom::trainer {

class TensorFiles {
 public:
  // Opens and checks every file; reads no tensor. Throws Error for a directory without any of these, an index
  // that names a file outside the directory or one that is missing, a shard that is missing or left over from
  // others, a tensor that is not where the index says, or is there twice.
  explicit TensorFiles(const std::string& directory);

  struct Entry {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace meshloom::trainer
