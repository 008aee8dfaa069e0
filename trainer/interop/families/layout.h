// Which tensor of the files holds which parameters of one model: the tensor table of a family, written out for
// every layer.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/interop/families/family.h"

namespace meshloom::trainer {

struct TensorMapping {
  std::string theirs;
  bool transposed = false;
  std::vector<NamedTensor> ours;  // one after another along their outputs
  std::int64_t expert = -1;  // of ours' first dimension, all that theirs holds; -1 = there are no experts
  std::vector<std::int64_t> shape;  // theirs
};

// Every parameter of the model stands in exactly one, or each of its experts does. Throws Error for a parameter that the family has no name for.
std::vector<TensorMapping> tensor_mappings(const Family& family, const std::vector<NamedTensor>& parameters);

// Whether `name` is one that the family's files may hold besides parameters (masks, tables).
bool is_ignored_tensor(const Family& family, const std::string& name);

// Cuts part `index` out of theirs, or puts it there; both f32, ours whole.
void take_part(const TensorMapping& placement, std::size_t index, std::span<const float> theirs,
               std::span<float> ours);
void put_part(const TensorMapping& placement, std::size_t index, std::span<const float> ours,
              std::span<float> theirs);

}  // namespace meshloom::trainer
