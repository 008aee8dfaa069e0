// The tensors of a Hugging Face directory: one model.safetensors, shards with model.safetensors.index.json,
// or all M shards model-0000N-of-0000M.safetensors without an index.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/interop/tensor_source.h"
#include "trainer/io/safetensors.h"

namespace meshloom::trainer {

class TensorFiles : public TensorSource {
 public:
  // Opens and checks every file; reads no tensor. Throws Error for a directory without these files, an index
  // that names a file that is missing or outside of the directory, a shard that is missing or belongs to
  // other shards, and a tensor that is in another file than the index says or in two files.
  explicit TensorFiles(const std::string& directory);

  struct Entry {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

  std::string described_by() const override { return "config.json"; }
  std::vector<std::string> names() const override;
  std::optional<Info> find(std::string_view name) const override;
  std::string file_of(std::string_view name) const override;
  std::string place(std::string_view name) const override;
  void read(std::string_view name, std::vector<float>& into) const override;

 private:
  const Entry& entry(std::string_view name) const { return entries_.find(name)->second; }
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace meshloom::trainer
