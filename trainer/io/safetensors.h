// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes. The reader trusts
// nothing. Source: the format description of huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {

struct StoredTensor {
  std::string name;
  std::string dtype = "F32";
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the start of the data

  std::int64_t bytes() const { return end - begin; }
};

// Checks a header and returns its entries in the order of their data. Throws Error for a header that is not
// a JSON object, duplicate names, unknown dtypes, shapes whose product overflows, and offsets that disagree
// with the shape, overlap, leave a hole or leave the file.
std::vector<StoredTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                   const std::string& where,
                                                   std::map<std::string, std::string>* metadata = nullptr);

// The header's bytes, its length included, of tensors that are stored one after another in the given order.
// Sets their begin and end.
std::string safetensors_header(std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata);

class SafetensorsFile {
 public:
  // Throws Error naming the file.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const StoredTensor* find(std::string_view name) const;
  // `into` must have exactly the tensor's bytes.
  void read(const StoredTensor& tensor, std::span<std::byte> into) const;
  // Bytes of it from `offset` on.
  void read_range(const StoredTensor& tensor, std::int64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t data_start_ = 0;
  std::vector<StoredTensor> tensors_;  // must not change: by_name_ points into it
  std::unordered_map<std::string_view, const StoredTensor*> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace meshloom::trainer
