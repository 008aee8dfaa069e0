// Maps the tensors of the files to the parameters of one model: the tensor table of a family, expanded for
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
  std::string hf_name;  // the tensor's name in the files
  bool transposed = false;
  std::vector<NamedTensor> parameters;  // the tensor has them one after another along their outputs
  std::int64_t expert =
      -1;  // the tensor has only this index of the parameters' first dimension; -1 = no experts
  std::vector<std::int64_t> shape;  // of the tensor
};

// Every parameter of the model, or each of its experts, is in exactly one tensor. Throws Error for a
// parameter for which the family has no name.
std::vector<TensorMapping> tensor_mappings(const Family& family, const std::vector<NamedTensor>& parameters);

// Whether the family's files may have a tensor of this name that is no parameter (masks, tables).
bool is_ignored_tensor(const Family& family, const std::string& name);

// Copy parameter `index` of the mapping out of the tensor, or into it. Both are f32; `parameter` is the whole
// parameter.
void extract_part(const TensorMapping& mapping, std::size_t index, std::span<const float> tensor,
                  std::span<float> parameter);
void insert_part(const TensorMapping& mapping, std::size_t index, std::span<const float> parameter,
                 std::span<float> tensor);

}  // namespace meshloom::trainer
