// The tensors that are a model: what its checkpoint holds, and how a run starts from one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// Parameters, then the model's states.
std::vector<NamedTensor> model_tensors(const Plan& plan);

// Writes each of `wanted` from a file that holds these and nothing else. Where it holds a feed-forward and the model
// experts in its place, every expert starts as a copy of it (Komatsuzaki et al., 2023), and what chooses between them is
// left as it is, which `note` is told. Throws Error naming the tensor.
void load_model(const SafetensorsFile& file, const std::vector<NamedTensor>& wanted,
                const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                const std::function<void(const std::string&)>& note);

}  // namespace meshloom::trainer
