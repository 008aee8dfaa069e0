// The tensors that are a model: what its checkpoint holds, and how a run starts from one.
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

// Parameters, then the model's states.
std::vector<NamedTensor> model_tensors(const Plan& plan);

// What to load of `wanted` from a file that holds some tensors as they are before they are packed, and what to write then:
// packs such a tensor when it arrives.
class Unpacked {
 public:
  using Write = std::function<void(const std::string& name, std::span<const std::byte> data)>;
  // `parameters` must outlive this.
  Unpacked(const SafetensorsFile& file, const std::vector<layers::ParameterInfo>& parameters, Write write);

  // With the file's tensors in place of those that are packed from them.
  std::vector<NamedTensor> wanted(std::vector<NamedTensor> wanted) const;
  void write(const std::string& name, std::span<const std::byte> data) const;
  std::size_t count() const { return packed_.size(); }

 private:
  std::map<std::string, std::vector<const layers::ParameterInfo*>> packed_;  // by the file's name
  Write write_;
};

// Writes each of `wanted` from a file that holds these and nothing else. Where it holds a feed-forward and the model
// experts in its place, every expert starts as a copy of it (Komatsuzaki et al., 2023), and what chooses between them is
// left as it is, which `note` is told. Throws Error naming the tensor.
void load_model(const SafetensorsFile& file, const std::vector<NamedTensor>& wanted,
                const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
