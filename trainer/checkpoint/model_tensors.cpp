#include "trainer/checkpoint/model_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "hal/suggest.h"

namespace meshloom::trainer {

std::vector<NamedTensor> model_tensors(const Plan& plan) {
  std::vector<NamedTensor> tensors;
  for (const layers::ParameterInfo& parameter : plan.parameters)
    tensors.push_back({parameter.path, parameter.type});
  for (const auto& [name, type] : plan.states) tensors.push_back({name, type});
  return tensors;
}

namespace {

// What a file has of the layer of a tensor that it lacks, which may be the same in another form: "decoder/head/weight_blocks".
std::string others_of_layer(const StoredTensors& file, const std::string& name) {
  const std::string layer = name.substr(0, name.rfind('/') + 1);
  std::vector<std::string> others;
  for (const StoredTensor& stored : file.tensors())
    if (!layer.empty() && stored.name.rfind('/') + 1 == layer.size() && stored.name.starts_with(layer))
      others.push_back("'" + stored.name.substr(layer.size()) + "'");
  return others.empty() ? "it is absent" : "it is absent; the layer has " + hal::join(others);
}

}  // namespace

void check_tensors(const StoredTensors& file, const std::vector<NamedTensor>& wanted, bool convert) {
  const std::string where = "'" + file.path() + "'";
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : wanted) {
    by_name[tensor.name] = &tensor;
    if (!file.find(tensor.name))
      throw Error(where, "must hold the tensor '" + tensor.name + "'", others_of_layer(file, tensor.name));
  }
  for (const StoredTensor& stored : file.tensors()) {
    const auto it = by_name.find(stored.name);
    if (it == by_name.end()) throw Error(where, "must hold only the run's tensors", "'" + stored.name + "'");
    const kernels::TensorType& type = it->second->type;
    const bool converts = convert && ((stored.dtype == "BF16" && type.dtype == kernels::DType::f32) ||
                                      (stored.dtype == "F32" && type.dtype == kernels::DType::bf16));
    if ((stored.dtype != stored_dtype(type.dtype) && !converts) || stored.shape != type.shape)
      throw Error(where + ", tensor '" + stored.name + "'", "must be " + kernels::to_string(type),
                  stored.dtype + kernels::to_string(stored.shape));
  }
}

QuantizingLoader::QuantizingLoader(const StoredTensors& file,
                                   const std::vector<layers::ParameterInfo>& parameters, Write write)
    : write_(std::move(write)) {
  for (const layers::ParameterInfo& parameter : parameters)
    if (parameter.storage && !file.find(parameter.path) && file.find(parameter.storage->source))
      quantized_[parameter.storage->source].push_back(&parameter);
}

std::vector<NamedTensor> QuantizingLoader::wanted(std::vector<NamedTensor> wanted) const {
  for (const auto& [source, parameters] : quantized_) {
    std::erase_if(wanted, [&, &list = parameters](const NamedTensor& tensor) {
      return std::any_of(list.begin(), list.end(), [&](const auto* p) { return p->path == tensor.name; });
    });
    wanted.push_back({source, parameters.front()->storage->type});
  }
  return wanted;
}

void QuantizingLoader::write(const std::string& name, std::span<const std::byte> data) const {
  const auto it = quantized_.find(name);
  if (it == quantized_.end()) return write_(name, data);
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), data.size());
  std::vector<std::byte> bytes;
  for (const layers::ParameterInfo* parameter : it->second) {
    bytes.resize(static_cast<std::size_t>(parameter->type.bytes()));
    parameter->storage->quantize(values, bytes);
    write_(parameter->path, bytes);
  }
}

void load_model(const StoredTensors& file, const std::vector<NamedTensor>& wanted,
                const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                const std::function<void(const std::string&)>& note) {
  static const std::string kExperts = "/experts/", kGating = "/gating/";
  std::map<std::string, const NamedTensor*> copied;  // by the dense layer's name
  std::set<std::string> mixtures;                    // paths of the layers with such experts
  for (const NamedTensor& tensor : wanted) {
    const std::size_t at = tensor.name.find(kExperts);
    if (at == std::string::npos || file.find(tensor.name)) continue;
    const std::string dense = tensor.name.substr(0, at + 1) + tensor.name.substr(at + kExperts.size());
    if (!file.find(dense)) continue;
    copied[dense] = &tensor;
    mixtures.insert(tensor.name.substr(0, at));
  }
  std::vector<NamedTensor> stored;
  std::size_t fresh = 0;
  for (const NamedTensor& tensor : wanted) {
    const std::size_t at = tensor.name.find(kGating);
    if (at != std::string::npos && mixtures.count(tensor.name.substr(0, at)) && !file.find(tensor.name))
      ++fresh;
    else if (std::none_of(copied.begin(), copied.end(), [&](const auto& c) { return c.second == &tensor; }))
      stored.push_back(tensor);
  }
  for (const auto& [dense, tensor] : copied) {
    kernels::TensorType type = tensor->type;
    type.shape.erase(type.shape.begin());
    stored.push_back({dense, type});
  }
  const auto take = [&](const std::string& name, std::span<const std::byte> data) {
    const auto it = copied.find(name);
    if (it == copied.end()) return write(name, data);
    std::vector<std::byte> all;
    for (std::int64_t e = 0; e < it->second->type.shape.front(); ++e)
      all.insert(all.end(), data.begin(), data.end());
    write(it->second->name, all);
  };
  load_tensors(file, stored, take, /*convert=*/true);
  if (!copied.empty())
    note(fmt::format(
        "the experts of {} layers start as copies of the dense feed-forward of '{}'; {} tensors of their "
        "routers keep their initial values",
        mixtures.size(), file.path(), fresh));
}

}  // namespace meshloom::trainer
