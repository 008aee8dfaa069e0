// The GGUF format of llama.cpp: a header of metadata and of tensor descriptions, then the tensors' bytes. Versions 2 and 3,
// little-endian. The reader trusts nothing. Source: the format description of ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/io/file.h"

namespace meshloom::trainer {

// The numbers are those of the format.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
std::string_view name_of(GgufType type);

// An array of texts, or of numbers as the file has them. Arrays of arrays are not read.
struct GgufArray {
  GgufType type = GgufType::i32;
  std::vector<std::string> texts;
  std::string bytes;  // of numbers

  std::size_t size() const;
  double number(std::size_t index) const;
};

struct GgufValue {
  GgufType type = GgufType::u32;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufArray> data;

  static GgufValue u32(std::int64_t value);
  static GgufValue f32(double value);
  static GgufValue flag(bool value);
  static GgufValue text(std::string value);
  static GgufValue texts(std::vector<std::string> values);
  static GgufValue i32s(std::span<const std::int32_t> values);
  // A line for messages: the number, or the beginning of the text.
  std::string shown() const;
};

// How the elements of a tensor are stored: in blocks of `elements` along the innermost dimension, of `bytes` each.
struct GgufBlock {
  std::uint32_t id;
  std::string_view name;  // "Q4_K"
  std::int64_t elements, bytes;
};
// The block of a type that is read here, or null. Types that are known but not read have a name only.
const GgufBlock* gguf_block(std::string_view name);
const GgufBlock* gguf_block(std::uint32_t id);
std::string gguf_type_name(std::uint32_t id);

struct GgufTensor {
  std::string name;
  const GgufBlock* block = nullptr;
  std::vector<std::int64_t> shape;  // outermost dimension first, which is the reverse of the file's order
  std::int64_t begin = 0, end = 0;  // bytes, from the start of the data

  std::int64_t elements() const;
  std::int64_t bytes() const { return end - begin; }
};

class GgufFile {
 public:
  // Opens a file and checks its header; reads no tensor. Throws Error naming the file, the place in it, the rule and what
  // was found: another version or byte order, more than 65,536 tensors or keys, a text above 1 MiB, an array that the file
  // cannot hold, a name that occurs twice, a type or a shape that is not read, and tensors that overlap, lie outside of the
  // file or are not aligned.
  explicit GgufFile(std::string path);

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;
  // Bytes of a tensor from `offset` on. Throws Error.
  void read(const GgufTensor& tensor, std::int64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t data_start_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;  // must not change: by_name_ has indices
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

constexpr std::int64_t kGgufAlignment = 32;
// The bytes of a version 3 header, padded to where the data begins, of tensors that are stored one after another, each
// padded to kGgufAlignment. Sets their begin and end. Throws Error for names that occur twice or are too long.
std::string gguf_header(const std::vector<std::pair<std::string, GgufValue>>& metadata,
                        std::vector<GgufTensor>& tensors);

}  // namespace meshloom::trainer
