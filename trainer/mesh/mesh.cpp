#include "trainer/mesh/mesh.h"

#include "hal/error.h"

namespace meshloom::trainer {

void MeshConfig::fields(layers::FieldVisitor& v) {
  v("pipeline", pipeline);
  v("data", data);
  v("expert", expert);
  v("fsdp", fsdp);
  v("seq", seq);
  v("model", model);
}

std::vector<MeshAxis> MeshConfig::axes() const {
  return {{"pipeline", pipeline}, {"data", data}, {"expert", expert}, {"fsdp", fsdp}, {"seq", seq}, {"model", model}};
}

std::int64_t MeshConfig::size() const {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes()) {
    if (axis.size < 1) throw Error("mesh." + axis.name, "an axis has at least one rank", std::to_string(axis.size));
    if (__builtin_mul_overflow(size, axis.size, &size)) throw Error("mesh", "has fewer than 2^63 ranks");
  }
  return size;
}

}  // namespace meshloom::trainer
