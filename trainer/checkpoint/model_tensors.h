// The tensors of a model in a checkpoint, and how a run loads them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// The model's parameters, then its states.
std::vector<NamedTensor> model_tensors(const Plan& plan);

// What load_tensors() checks before it passes anything on: throws Error when names, types or shapes of the tensors differ from `wanted`.
void check_tensors(const StoredTensors& file, const std::vector<NamedTensor>& wanted, bool convert = false);

// Loads a model with quantized parameters from a file that holds some of them unquantized: such a tensor is
// quantized when it is read.
class QuantizingLoader {
 public:
  using Write = std::function<void(const std::string& name, std::span<const std::byte> data)>;
  // `parameters` must outlive this.
  QuantizingLoader(const StoredTensors& file, const std::vector<layers::ParameterInfo>& parameters,
                   Write write);

  // `wanted` with the file's tensors in place of the parameters that are quantized from them.
  std::vector<NamedTensor> wanted(std::vector<NamedTensor> wanted) const;
  void write(const std::string& name, std::span<const std::byte> data) const;
  std::size_t count() const { return quantized_.size(); }

 private:
  std::map<std::string, std::vector<const layers::ParameterInfo*>> quantized_;  // by the name in the file
  Write write_;
};

// Writes each of `wanted` from a file that holds exactly these, in f32 or in bf16. When the file has a dense feed-forward where
// the model has experts, every expert starts as a copy of it (sparse upcycling, Komatsuzaki et al., 2023) and
// the router keeps its initial values; that is noted. Throws Error naming the tensor.
void load_model(const StoredTensors& file, const std::vector<NamedTensor>& wanted,
                const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
