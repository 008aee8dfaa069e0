// A GGUF file as an import reads it: the config.json that describes its model, and its tensors under the names and in the
// layout that transformers gives them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/interop/gguf_names.h"
#include "trainer/interop/tensor_source.h"
#include "trainer/io/gguf.h"

namespace meshloom::trainer {

class GgufModel : public TensorSource {
 public:
  // Throws Error, as GgufFile and config_of_gguf do, and for stacked experts of another number than the metadata says.
  explicit GgufModel(const std::string& path);

  const GgufFile& file() const { return file_; }
  const nlohmann::json& config() const { return config_; }

  std::string described_by() const override { return "its metadata"; }
  std::vector<std::string> names() const override;
  std::optional<Info> find(std::string_view name) const override;
  std::string file_of(std::string_view name) const override;
  std::string place(std::string_view name) const override;
  void read(std::string_view name, std::vector<float>& into) const override;
  bool in_blocks(std::string_view name) const override;
  std::string block_format(std::string_view name) const override;
  void read_blocks(std::string_view name, std::vector<std::byte>& into) const override;

 private:
  struct Entry {
    const GgufTensor* tensor;
    GgufChange change = GgufChange::none;
    std::int64_t expert = -1;
  };
  std::int64_t heads(const Entry& entry) const;

  GgufFile file_;
  nlohmann::json config_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace meshloom::trainer
