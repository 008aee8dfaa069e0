#include "trainer/io/safetensors.h"

#include <algorithm>
#include <array>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxHeader = 100'000'000;  // the limit of the format's own readers
constexpr std::size_t kMaxRank = 64;

std::int64_t element_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, int>, 13> kTypes{{{"F64", 8},
                                                                            {"I64", 8},
                                                                            {"U64", 8},
                                                                            {"F32", 4},
                                                                            {"I32", 4},
                                                                            {"U32", 4},
                                                                            {"F16", 2},
                                                                            {"BF16", 2},
                                                                            {"I16", 2},
                                                                            {"U16", 2},
                                                                            {"I8", 1},
                                                                            {"U8", 1},
                                                                            {"BOOL", 1}}};
  for (const auto& [name, bytes] : kTypes)
    if (name == dtype) return bytes;
  return 0;
}

StoredTensor parse_entry(const std::string& name, const Json& json, std::int64_t data_bytes,
                         const std::string& file) {
  const std::string where = file + ", tensor " + shown(name);
  if (!json.is_object()) throw Error(where, "must be a JSON object", shown_json(json));
  for (const auto& [key, value] : json.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      throw Error(where, "must have the fields dtype, shape and data_offsets", shown(key));
  if (json.size() != 3)
    throw Error(where, "must have the fields dtype, shape and data_offsets", "one is missing");
  StoredTensor tensor;
  tensor.name = name;
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!dtype.is_string() || element_bytes(dtype.get_ref<const std::string&>()) == 0)
    throw Error(where, "dtype must be a known element type", shown_json(dtype));
  tensor.dtype = dtype.get<std::string>();
  if (!shape.is_array() || shape.size() > kMaxRank) throw Error(where, "shape must be a list of sizes");
  std::int64_t bytes = element_bytes(tensor.dtype);
  bool overflow = false;
  for (const Json& size : shape) {
    std::int64_t value;
    if (!natural(size, value)) throw Error(where, "shape must be a list of sizes", shown_json(size));
    tensor.shape.push_back(value);
    overflow |= __builtin_mul_overflow(bytes, value, &bytes);
  }
  if (overflow && std::find(tensor.shape.begin(), tensor.shape.end(), 0) == tensor.shape.end())
    throw Error(where, "the product of its shape must fit in 63 bits", shown_json(shape));
  if (overflow) bytes = 0;
  if (!offsets.is_array() || offsets.size() != 2 || !natural(offsets[0], tensor.begin) ||
      !natural(offsets[1], tensor.end))
    throw Error(where, "data_offsets must be two sizes", shown_json(offsets));
  if (tensor.begin > tensor.end || tensor.end > data_bytes)
    throw Error(where, "its data must lie inside the file's " + std::to_string(data_bytes) + " bytes of data",
                shown_json(offsets));
  if (tensor.end - tensor.begin != bytes)
    throw Error(where, "its dtype and shape need " + std::to_string(bytes) + " bytes",
                std::to_string(tensor.end - tensor.begin));
  return tensor;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                   const std::string& where,
                                                   std::map<std::string, std::string>* metadata) {
  const Json json = parse_json(header, where, "the header", 4);
  if (!json.is_object()) throw Error(where, "the header must be a JSON object", shown_json(json));
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) throw Error(where, "__metadata__ must map text to text");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) throw Error(where, "__metadata__ must map text to text", shown(key));
        if (metadata) (*metadata)[key] = value.get<std::string>();
      }
      continue;
    }
    tensors.push_back(parse_entry(name, entry, data_bytes, where));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::int64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != at)
      throw Error(
          where + ", tensor " + shown(tensor.name),
          "tensors must follow each other without holes or overlaps: the next byte is " + std::to_string(at),
          "an offset of " + std::to_string(tensor.begin));
    at = tensor.end;
  }
  if (at != data_bytes)
    throw Error(where, "the tensors must cover all " + std::to_string(data_bytes) + " bytes of data",
                std::to_string(at));
  return tensors;
}

std::string safetensors_header(std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (StoredTensor& tensor : tensors) {
    std::int64_t bytes = element_bytes(tensor.dtype);
    if (bytes == 0) throw Error("safetensors", "dtype must be a known element type", tensor.dtype);
    for (std::int64_t size : tensor.shape) bytes *= size;
    tensor.begin = at;
    tensor.end = at += bytes;
    if (json.contains(tensor.name)) throw Error("safetensors", "names must differ", tensor.name);
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out;
  for (std::uint64_t size = text.size(), i = 0; i < 8; ++i) out += static_cast<char>(size >> (8 * i) & 0xff);
  return out + text;
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  const std::string where = "'" + path_ + "'";
  file_ = open_file(path_, where);
  const std::int64_t bytes = file_bytes(file_, where);
  if (bytes < 8)
    throw Error(where, "a safetensors file starts with 8 bytes of header length",
                std::to_string(bytes) + " bytes");
  unsigned char word[8];
  read_at(file_, word, 8, 0, where);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | word[i];
  if (length < 2 || length > static_cast<std::uint64_t>(std::min<std::int64_t>(bytes - 8, kMaxHeader)))
    throw Error(where, "the header's length must be within the file's " + std::to_string(bytes) + " bytes",
                std::to_string(length));
  std::string header(length, '\0');
  read_at(file_, header.data(), length, 8, where);
  data_start_ = 8 + static_cast<std::int64_t>(length);
  tensors_ = parse_safetensors_header(header, bytes - data_start_, where, &metadata_);
  for (const StoredTensor& tensor : tensors_) by_name_[tensor.name] = &tensor;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> into) const {
  const std::string where = "'" + path_ + "', tensor " + shown(tensor.name);
  if (static_cast<std::int64_t>(into.size()) != tensor.bytes())
    throw Error(where, "must be read into " + std::to_string(into.size()) + " bytes",
                std::to_string(tensor.bytes()));
  read_range(tensor, 0, into);
}

void SafetensorsFile::read_range(const StoredTensor& tensor, std::int64_t offset,
                                 std::span<std::byte> into) const {
  const std::string where = "'" + path_ + "', tensor " + shown(tensor.name);
  if (offset < 0 || static_cast<std::int64_t>(into.size()) > tensor.bytes() - offset)
    throw Error(where, "must be read within its " + std::to_string(tensor.bytes()) + " bytes",
                std::to_string(into.size()) + " from " + std::to_string(offset));
  read_at(file_, into.data(), into.size(), data_start_ + tensor.begin + offset, where);
}

}  // namespace meshloom::trainer
