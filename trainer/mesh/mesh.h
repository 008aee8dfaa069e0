// The mesh of a recipe: named axes over ranks. Over a mesh of one rank the partition pass is the identity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

// What moves between ranks in fewer bits: f32, bf16 or int8, the value of a field. Throws Error for others.
kernels::DType moved_dtype(const std::string& field, const std::string& text);

// How islands exchange what they have learnt (DiLoCo: Douillard et al., 2023; in parts: Streaming DiLoCo, 2025).
struct OuterConfig : layers::ConfigOf<OuterConfig> {
  static constexpr std::string_view kName = "Outer";
  static constexpr std::string_view kAbout = "How islands exchange what they have learnt (DiLoCo).";
  std::int64_t every = 50;
  double rate = 1, momentum = 0;  // the mean of the islands; DiLoCo's 0.7 and 0.9 want many exchanges
  bool nesterov = true;
  std::int64_t parts = 1;
  std::string dtype = "f32";

  void fields(layers::FieldVisitor& v) override;
  OuterOptions options() const;  // throws Error on invalid values
};

struct MeshConfig : layers::ConfigOf<MeshConfig> {
  static constexpr std::string_view kName = "Mesh";
  static constexpr std::string_view kAbout = "Named axes over ranks, whose product is the number of ranks.";
  std::int64_t islands = 1, pipeline = 1, data = 1, expert = 1, fsdp = 1, seq = 1, model = 1;
  std::string schedule = "1f1b";
  std::int64_t chunks = 2;
  std::vector<std::int64_t> shares;  // rows of a micro-batch by place over data and fsdp; empty = equal
  bool balance = false;
  std::string attention = "gather", sequence_order = "contiguous", gradient_dtype = "f32";
  layers::Child<OuterConfig> outer = OuterConfig{};

  void fields(layers::FieldVisitor& v) override;
  std::vector<MeshAxis> axes() const;
  // Sets the axes from "data=2,fsdp=-1", where -1 is what is left of `ranks` (0 = unknown). Throws Error.
  void parse(const std::string& text, std::int64_t ranks);
  // Throws Error where the shares do not suit so many rows of a micro-batch, or the other axes.
  void check_shares_of(std::int64_t rows) const;
  // The number of ranks. Throws Error for an axis below 1 or a product that overflows.
  std::int64_t size() const;
};

}  // namespace meshloom::trainer
