// The mesh: named axes over ranks. Every parameter and activation already carries logical axes. Over a mesh
// of one rank the partition pass is the identity; a larger mesh is refused until more ranks are supported.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/config/config.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {

struct MeshConfig : layers::ConfigOf<MeshConfig> {
  static constexpr std::string_view kName = "Mesh";
  static constexpr std::string_view kAbout =
      "Named axes over ranks; more than one rank is not supported yet.";
  std::int64_t pipeline = 1, data = 1, expert = 1, fsdp = 1, seq = 1, model = 1;

  void fields(layers::FieldVisitor& v) override;
  std::vector<MeshAxis> axes() const;
  // The number of ranks. Throws Error for an axis below 1 or a product that overflows.
  std::int64_t size() const;
};

}  // namespace meshloom::trainer
