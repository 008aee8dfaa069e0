#include "trainer/io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied from and into the file");

constexpr std::uint64_t kMaxTensors = 65536, kMaxKeys = 65536, kMaxText = 1 << 20, kMaxName = 4096,
                        kMaxElements = 1 << 24, kMaxAlignment = 65536;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::size_t kBuffer = 1 << 18;

constexpr std::array<std::string_view, 13> kTypeNames{"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                                      "bool", "text", "array", "u64", "i64", "f64"};

constexpr std::array<GgufBlock, 11> kBlocks{{{0, "F32", 1, 4},
                                             {1, "F16", 1, 2},
                                             {2, "Q4_0", 32, 18},
                                             {3, "Q4_1", 32, 20},
                                             {6, "Q5_0", 32, 22},
                                             {7, "Q5_1", 32, 24},
                                             {8, "Q8_0", 32, 34},
                                             {12, "Q4_K", 256, 144},
                                             {13, "Q5_K", 256, 176},
                                             {14, "Q6_K", 256, 210},
                                             {30, "BF16", 1, 2}}};

// Names for messages of types that are not read.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 24> kOtherBlocks{
    {{9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
     {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
     {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
     {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"}, {4, "Q4_2"},     {5, "Q4_3"}}};

std::size_t bytes_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::text:
    case GgufType::array:
      break;
  }
  return 0;
}

template <typename T>
T loaded(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Reads the header from the front. Every count is compared with the bytes that are left before anything is allocated.
class Reader {
 public:
  Reader(const Descriptor& file, std::int64_t bytes, std::string where)
      : file_(file), bytes_(static_cast<std::uint64_t>(bytes)), where_(std::move(where)) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_ - at_; }

  void copy(void* into, std::size_t bytes, const std::string& what) {
    if (bytes > left())
      throw Error(where_ + ", " + what, "must lie within the file's " + std::to_string(bytes_) + " bytes",
                  fmt::format("{} bytes at {}", bytes, at_));
    auto* to = static_cast<char*>(into);
    while (bytes > 0) {
      if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
        buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBuffer, left())));
        begin_ = at_;
        read_at(file_, buffer_.data(), buffer_.size(), static_cast<std::int64_t>(at_), where_);
      }
      const std::size_t offset = static_cast<std::size_t>(at_ - begin_),
                        part = std::min(bytes, buffer_.size() - offset);
      std::memcpy(to, buffer_.data() + offset, part);
      to += part;
      at_ += part;
      bytes -= part;
    }
  }

  template <typename T>
  T number(const std::string& what) {
    T value;
    copy(&value, sizeof value, what);
    return value;
  }

  std::string text(std::uint64_t max, const std::string& what) {
    const auto length = number<std::uint64_t>(what);
    if (length > max)
      throw Error(where_ + ", " + what, "a text must have at most " + std::to_string(max) + " bytes",
                  std::to_string(length));
    if (length > left())
      throw Error(where_ + ", " + what, "must lie within the file's " + std::to_string(bytes_) + " bytes",
                  fmt::format("a text of {} bytes at {}", length, at_));
    std::string value(static_cast<std::size_t>(length), '\0');
    copy(value.data(), value.size(), what);
    return value;
  }

  GgufType type(const std::string& what) {
    const auto id = number<std::uint32_t>(what);
    if (id >= kTypeNames.size())
      throw Error(where_ + ", " + what, "a type of value must be 0 to 12", std::to_string(id));
    return static_cast<GgufType>(id);
  }

  GgufValue value(GgufType type, const std::string& what) {
    GgufValue value{type, {}};
    switch (type) {
      case GgufType::text:
        value.data = text(kMaxText, what);
        return value;
      case GgufType::array:
        value.data = array(what);
        return value;
      case GgufType::boolean: {
        const auto byte = number<std::uint8_t>(what);
        if (byte > 1) throw Error(where_ + ", " + what, "a bool must be 0 or 1", std::to_string(byte));
        value.data = byte == 1;
        return value;
      }
      case GgufType::u8:
        value.data = std::uint64_t{number<std::uint8_t>(what)};
        return value;
      case GgufType::u16:
        value.data = std::uint64_t{number<std::uint16_t>(what)};
        return value;
      case GgufType::u32:
        value.data = std::uint64_t{number<std::uint32_t>(what)};
        return value;
      case GgufType::u64:
        value.data = number<std::uint64_t>(what);
        return value;
      case GgufType::i8:
        value.data = std::int64_t{number<std::int8_t>(what)};
        return value;
      case GgufType::i16:
        value.data = std::int64_t{number<std::int16_t>(what)};
        return value;
      case GgufType::i32:
        value.data = std::int64_t{number<std::int32_t>(what)};
        return value;
      case GgufType::i64:
        value.data = number<std::int64_t>(what);
        return value;
      case GgufType::f32:
        value.data = double{number<float>(what)};
        return value;
      case GgufType::f64:
        value.data = number<double>(what);
        return value;
    }
    return value;
  }

 private:
  GgufArray array(const std::string& what) {
    GgufArray array;
    array.type = type(what);
    if (array.type == GgufType::array)
      throw Error(where_ + ", " + what, "an array must hold texts or numbers", "arrays");
    const auto count = number<std::uint64_t>(what);
    const std::size_t each = array.type == GgufType::text ? 8 : bytes_of(array.type);
    if (count > kMaxElements || count * each > left())
      throw Error(where_ + ", " + what,
                  fmt::format("an array must have at most {} elements and lie within the file's {} bytes",
                              kMaxElements, bytes_),
                  std::to_string(count));
    if (array.type != GgufType::text) {
      array.bytes.resize(static_cast<std::size_t>(count) * each);
      copy(array.bytes.data(), array.bytes.size(), what);
      return array;
    }
    for (std::uint64_t i = 0; i < count; ++i) array.texts.push_back(text(kMaxText, what));
    return array;
  }

  const Descriptor& file_;
  std::uint64_t bytes_, at_ = 0, begin_ = 0;
  std::vector<char> buffer_;
  std::string where_;
};

GgufTensor read_tensor(Reader& in, std::uint64_t alignment, std::uint64_t index, const std::string& where) {
  const std::string what = "tensor " + std::to_string(index);
  GgufTensor tensor;
  tensor.name = in.text(kMaxName, what);
  const std::string here = where + ", tensor " + shown(tensor.name);
  const auto rank = in.number<std::uint32_t>(what);
  if (rank < 1 || rank > kMaxDimensions)
    throw Error(here, "must have 1 to 4 dimensions", std::to_string(rank));
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto size = in.number<std::uint64_t>(what);
    if (size < 1 || size > INT64_MAX ||
        __builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &elements))
      throw Error(here, "the sizes must be at least 1, and their product must fit in 63 bits",
                  std::to_string(size));
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  const auto type = in.number<std::uint32_t>(what);
  tensor.block = gguf_block(type);
  if (!tensor.block)
    throw Error(here, "its type must be F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K",
                gguf_type_name(type));
  if (tensor.shape[0] % tensor.block->elements != 0)
    throw Error(
        here, fmt::format("rows of {} must be a multiple of {}", tensor.block->name, tensor.block->elements),
        std::to_string(tensor.shape[0]));
  const auto offset = in.number<std::uint64_t>(what);
  std::int64_t bytes = 0, end = 0;
  if (offset % alignment != 0)
    throw Error(here, "its offset must be a multiple of the alignment, " + std::to_string(alignment),
                std::to_string(offset));
  if (offset > INT64_MAX ||
      __builtin_mul_overflow(elements / tensor.block->elements, tensor.block->bytes, &bytes) ||
      __builtin_add_overflow(static_cast<std::int64_t>(offset), bytes, &end))
    throw Error(here, "its end must fit in 63 bits", std::to_string(offset));
  tensor.begin = static_cast<std::int64_t>(offset);
  tensor.end = end;
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return tensor;
}

void append(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}
template <typename T>
void append(std::string& out, T value) {
  append(out, &value, sizeof value);
}
void append_text(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out += text;
}

void append_value(std::string& out, const GgufValue& value) {
  append(out, static_cast<std::uint32_t>(value.type));
  if (const auto* number = std::get_if<std::uint64_t>(&value.data)) {
    append(out, number, bytes_of(value.type));  // little-endian: the low bytes come first
  } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    append(out, integer, bytes_of(value.type));
  } else if (const auto* real = std::get_if<double>(&value.data)) {
    if (value.type == GgufType::f32)
      append(out, static_cast<float>(*real));
    else
      append(out, *real);
  } else if (const auto* flag = std::get_if<bool>(&value.data)) {
    append<std::uint8_t>(out, *flag ? 1 : 0);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    append_text(out, *text);
  } else {
    const GgufArray& array = std::get<GgufArray>(value.data);
    append(out, static_cast<std::uint32_t>(array.type));
    append<std::uint64_t>(out, array.size());
    for (const std::string& text : array.texts) append_text(out, text);
    out += array.bytes;
  }
}

std::int64_t aligned(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::string_view name_of(GgufType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::size_t GgufArray::size() const {
  return type == GgufType::text ? texts.size() : bytes.size() / bytes_of(type);
}

double GgufArray::number(std::size_t index) const {
  const char* from = bytes.data() + index * bytes_of(type);
  switch (type) {
    case GgufType::u8:
    case GgufType::boolean:
      return loaded<std::uint8_t>(from);
    case GgufType::i8:
      return loaded<std::int8_t>(from);
    case GgufType::u16:
      return loaded<std::uint16_t>(from);
    case GgufType::i16:
      return loaded<std::int16_t>(from);
    case GgufType::u32:
      return loaded<std::uint32_t>(from);
    case GgufType::i32:
      return loaded<std::int32_t>(from);
    case GgufType::f32:
      return loaded<float>(from);
    case GgufType::u64:
      return static_cast<double>(loaded<std::uint64_t>(from));
    case GgufType::i64:
      return static_cast<double>(loaded<std::int64_t>(from));
    case GgufType::f64:
      return loaded<double>(from);
    case GgufType::text:
    case GgufType::array:
      break;
  }
  return 0;
}

GgufValue GgufValue::u32(std::int64_t value) { return {GgufType::u32, static_cast<std::uint64_t>(value)}; }
GgufValue GgufValue::f32(double value) { return {GgufType::f32, value}; }
GgufValue GgufValue::flag(bool value) { return {GgufType::boolean, value}; }
GgufValue GgufValue::text(std::string value) { return {GgufType::text, std::move(value)}; }
GgufValue GgufValue::texts(std::vector<std::string> values) {
  return {GgufType::array, GgufArray{GgufType::text, std::move(values), {}}};
}
GgufValue GgufValue::i32s(std::span<const std::int32_t> values) {
  return {
      GgufType::array,
      GgufArray{
          GgufType::i32, {}, std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes())}};
}

std::string GgufValue::shown() const {
  if (const auto* number = std::get_if<std::uint64_t>(&data)) return std::to_string(*number);
  if (const auto* integer = std::get_if<std::int64_t>(&data)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&data)) return fmt::format("{}", *real);
  if (const auto* flag = std::get_if<bool>(&data)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&data)) return trainer::shown(*text);
  const GgufArray& array = std::get<GgufArray>(data);
  return fmt::format("an array of {} {}", array.size(),
                     array.type == GgufType::text ? "texts" : name_of(array.type));
}

const GgufBlock* gguf_block(std::string_view name) {
  const auto it = std::find_if(kBlocks.begin(), kBlocks.end(), [&](const auto& b) { return b.name == name; });
  return it == kBlocks.end() ? nullptr : &*it;
}
const GgufBlock* gguf_block(std::uint32_t id) {
  const auto it = std::find_if(kBlocks.begin(), kBlocks.end(), [&](const auto& b) { return b.id == id; });
  return it == kBlocks.end() ? nullptr : &*it;
}
std::string gguf_type_name(std::uint32_t id) {
  if (const GgufBlock* block = gguf_block(id)) return std::string(block->name);
  for (const auto& [other, name] : kOtherBlocks)
    if (other == id) return std::string(name);
  return "type " + std::to_string(id);
}

std::int64_t GgufTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

GgufFile::GgufFile(std::string path) : path_(std::move(path)) {
  const std::string where = "'" + path_ + "'";
  file_ = open_file(path_, where);
  const std::int64_t bytes = file_bytes(file_, where);
  Reader in(file_, bytes, where);
  std::array<char, 4> magic{};
  in.copy(magic.data(), 4, "its first bytes");
  if (std::string_view(magic.data(), 4) != "GGUF")
    throw Error(where, "a GGUF file begins with the letters GGUF", shown({magic.data(), 4}));
  const auto version = in.number<std::uint32_t>("version");
  if (version != 0 && (version & 0xffff) == 0)
    throw Error(where, "must be little-endian; big-endian GGUF files are not read",
                "version " + std::to_string(__builtin_bswap32(version)) + " in the other byte order");
  if (version != 2 && version != 3) throw Error(where, "the version must be 2 or 3", std::to_string(version));
  const auto tensors = in.number<std::uint64_t>("the number of tensors"),
             keys = in.number<std::uint64_t>("the number of keys");
  if (tensors > kMaxTensors) throw Error(where, "must have at most 65536 tensors", std::to_string(tensors));
  if (keys > kMaxKeys) throw Error(where, "must have at most 65536 keys", std::to_string(keys));
  for (std::uint64_t i = 0; i < keys; ++i) {
    std::string key = in.text(kMaxName, "key " + std::to_string(i));
    if (key.empty()) throw Error(where + ", key " + std::to_string(i), "must not be empty");
    const std::string what = "key " + shown(key);
    const GgufType type = in.type(what);
    GgufValue value = in.value(type, what);
    if (!metadata_.try_emplace(std::move(key), std::move(value)).second)
      throw Error(where + ", " + what, "must occur once", "twice");
  }
  std::uint64_t alignment = kGgufAlignment;
  if (const auto it = metadata_.find("general.alignment"); it != metadata_.end()) {
    const auto* number = std::get_if<std::uint64_t>(&it->second.data);
    if (!number || !std::has_single_bit(*number) || *number > kMaxAlignment)
      throw Error(where + ", key general.alignment", "must be a power of two of at most 65536",
                  it->second.shown());
    alignment = *number;
  }
  for (std::uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(read_tensor(in, alignment, i, where));
    if (!by_name_.try_emplace(tensors_.back().name, tensors_.size() - 1).second)
      throw Error(where + ", tensor " + shown(tensors_.back().name), "must occur once", "twice");
  }
  data_start_ = aligned(static_cast<std::int64_t>(in.at()), static_cast<std::int64_t>(alignment));
  const std::int64_t data = std::max<std::int64_t>(bytes - data_start_, 0);
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::int64_t at = 0;
  for (const GgufTensor* tensor : order) {
    const std::string here = where + ", tensor " + shown(tensor->name);
    if (tensor->end > data)
      throw Error(here, "its data must lie inside the file's " + std::to_string(data) + " bytes of data",
                  fmt::format("bytes {} to {}", tensor->begin, tensor->end));
    if (tensor->begin < at)
      throw Error(here, "tensors must not overlap: the next free byte is " + std::to_string(at),
                  "an offset of " + std::to_string(tensor->begin));
    at = tensor->end;
  }
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::read(const GgufTensor& tensor, std::int64_t offset, std::span<std::byte> into) const {
  const std::string where = "'" + path_ + "', tensor " + shown(tensor.name);
  if (offset < 0 || static_cast<std::int64_t>(into.size()) > tensor.bytes() - offset)
    throw Error(where, "must be read within its " + std::to_string(tensor.bytes()) + " bytes",
                std::to_string(into.size()) + " from " + std::to_string(offset));
  read_at(file_, into.data(), into.size(), data_start_ + tensor.begin + offset, where);
}

std::string gguf_header(const std::vector<std::pair<std::string, GgufValue>>& metadata,
                        std::vector<GgufTensor>& tensors) {
  std::string out = "GGUF";
  append<std::uint32_t>(out, 3);
  append<std::uint64_t>(out, tensors.size());
  append<std::uint64_t>(out, metadata.size());
  std::set<std::string> names;
  for (const auto& [key, value] : metadata) {
    if (!names.insert(key).second) throw Error("GGUF", "keys must differ", key);
    append_text(out, key);
    append_value(out, value);
  }
  names.clear();
  std::int64_t at = 0;
  for (GgufTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) throw Error("GGUF", "names of tensors must differ", tensor.name);
    // The limit of ggml, which counts the byte that ends the name.
    if (tensor.name.size() > 63)
      throw Error("GGUF", "the name of a tensor must have at most 63 bytes", tensor.name);
    tensor.begin = at;
    tensor.end = at + tensor.elements() / tensor.block->elements * tensor.block->bytes;
    at = aligned(tensor.end, kGgufAlignment);
    append_text(out, tensor.name);
    append<std::uint32_t>(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      append<std::uint64_t>(out, static_cast<std::uint64_t>(*size));
    append(out, tensor.block->id);
    append<std::uint64_t>(out, static_cast<std::uint64_t>(tensor.begin));
  }
  out.resize(static_cast<std::size_t>(aligned(static_cast<std::int64_t>(out.size()), kGgufAlignment)), '\0');
  return out;
}

}  // namespace meshloom::trainer
