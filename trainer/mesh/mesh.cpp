#include "trainer/mesh/mesh.h"

#include "hal/error.h"

namespace meshloom::trainer {

void MeshConfig::fields(layers::FieldVisitor& v) {
  v("pipeline", pipeline, {"Ranks among which the layers are divided.", layers::at_least(1)});
  v("data", data, {"Ranks among which the batch is divided, each with all parameters.", layers::at_least(1)});
  v("expert", expert, {"Ranks among which the experts are divided.", layers::at_least(1)});
  v("fsdp", fsdp, {"Ranks among which the batch and the parameters are divided.", layers::at_least(1)});
  v("seq", seq, {"Ranks among which the sequence is divided.", layers::at_least(1)});
  v("model", model, {"Ranks among which the features of a layer are divided.", layers::at_least(1)});
}

std::vector<MeshAxis> MeshConfig::axes() const {
  return {{"pipeline", pipeline}, {"data", data}, {"expert", expert},
          {"fsdp", fsdp},         {"seq", seq},   {"model", model}};
}

std::int64_t MeshConfig::size() const {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes()) {
    if (axis.size < 1)
      throw Error("mesh." + axis.name, "an axis must have at least one rank", std::to_string(axis.size));
    if (__builtin_mul_overflow(size, axis.size, &size))
      throw Error("mesh", "must have fewer than 2^63 ranks");
  }
  return size;
}

}  // namespace meshloom::trainer
