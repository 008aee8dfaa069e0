#include "layers/quantized/block_storage.h"

namespace meshloom::layers {
namespace {

namespace blocks = kernels::block_quantized;

const blocks::Format& format_of(const std::string& path, const std::string& name) {
  const blocks::Format* format = blocks::find_format(name);
  if (!format)
    throw Error(display_path(path), "format must be one of " + blocks::format_names(), "'" + name + "'");
  return *format;
}

}  // namespace

void BlockFields::visit(FieldVisitor& v) {
  v("format", format,
    {"How blocks are stored: the name of one of ggml's types. q4_k, q5_k and q6_k can only be imported.",
     one_of("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k")});
  v("activations", activations,
    {"What the blocks are multiplied with: the activations in eight-bit integers, with a scale for each 32 "
     "of a row, or "
     "as they are.",
     one_of("int8", "float")});
}

BlockStorage::BlockStorage(const std::string& path, const BlockFields& fields, std::int64_t rows,
                           std::int64_t columns)
    : path_(path),
      activations_(fields.activations),
      format_(format_of(path, fields.format)),
      rows_(rows),
      columns_(columns) {
  if (activations_ != "int8" && activations_ != "float")
    throw Error(display_path(path), "activations must be int8 or float", "'" + activations_ + "'");
  if (columns % format_.elements != 0)
    throw Error(display_path(path),
                "the inputs of a matrix in " + fields.format + " must be a multiple of " +
                    std::to_string(format_.elements),
                std::to_string(columns));
}

kernels::TensorType BlockStorage::type() const {
  return {kernels::DType::u8, {rows_, blocks::row_bytes(format_, columns_)}};
}

QuantizedStorage BlockStorage::storage(const std::string& source) const {
  const auto quantize = [path = path_, format = format_](std::span<const float> values,
                                                         std::span<std::byte> into) {
    if (!format.is_written)
      throw Error(display_path(path),
                  "blocks of " + std::string(format.name) +
                      " must come from a GGUF file (import --keep-quantized), as they are not made here",
                  "a matrix in f32");
    if (!blocks::quantize(format, values.data(), static_cast<std::int64_t>(values.size()),
                          reinterpret_cast<std::uint8_t*>(into.data())))
      throw Error(display_path(path), "values must be finite, and so must the scales of their blocks",
                  "some that are not");
  };
  return {source, {kernels::DType::f32, {rows_, columns_}}, quantize, true};
}

kernels::BlockQuantizedOptions BlockStorage::options(kernels::Tensor bias) const {
  return {
      .format = std::string(format_.name), .columns = columns_, .activations = activations_, .bias = bias};
}

Merge BlockStorage::merge(const Parameter& blocks) const {
  const auto dequantize = [format = format_, elements = rows_ * columns_](const auto& values) {
    const std::vector<std::uint8_t> bytes(values[0].begin(), values[0].end());
    std::vector<float> into(static_cast<std::size_t>(elements));
    kernels::block_quantized::dequantize(format, bytes.data(), elements, into.data());
    return into;
  };
  return {blocks.storage->source, blocks.storage->type.shape, {blocks.path}, dequantize};
}

}  // namespace meshloom::layers
