#include "trainer/interop/layout.h"

#include <map>
#include <regex>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kIndex = "{i}";

std::string numbered(std::string text, std::int64_t layer) {
  if (const std::size_t at = text.find(kIndex); at != std::string::npos)
    text.replace(at, kIndex.size(), std::to_string(layer));
  return text;
}

// Calls fn(index in theirs, index in ours) for each element of part `index`.
template <typename Fn>
void each_element(const TensorPlace& placement, std::size_t index, Fn fn) {
  std::int64_t first = 0;  // the part's first output
  for (std::size_t i = 0; i < index; ++i) first += placement.ours[i].type.shape[0];
  const kernels::Shape& shape = placement.ours[index].type.shape;
  const std::int64_t outputs = shape[0], inputs = shape.size() > 1 ? shape[1] : 1;
  const bool across = placement.transposed && shape.size() > 1;
  const std::int64_t width = across ? placement.shape[1] : inputs;
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t i = 0; i < inputs; ++i)
      fn(static_cast<std::size_t>(across ? i * width + first + o : (first + o) * width + i),
         static_cast<std::size_t>(o * inputs + i));
}

}  // namespace

std::vector<TensorPlace> tensor_places(const Family& family, const std::vector<NamedTensor>& parameters) {
  std::map<std::string, const NamedTensor*> left;
  for (const NamedTensor& parameter : parameters) left[parameter.name] = &parameter;
  std::vector<TensorPlace> result;
  for (const TensorRule& rule : family.tensors) {
    const bool layered = rule.theirs.find(kIndex) != std::string::npos;
    for (std::int64_t layer = 0; layer == 0 || layered; ++layer) {
      TensorPlace placement{numbered(rule.theirs, layer), rule.transposed, {}, {}};
      for (const std::string& path : rule.ours)
        if (const auto it = left.find(numbered(path, layer)); it != left.end()) {
          placement.ours.push_back(*it->second);
          left.erase(it);
        }
      if (placement.ours.empty()) break;  // the model has no such parameters, or no more layers
      if (placement.ours.size() != rule.ours.size())
        throw Error("model", family.name + "'s " + placement.theirs + " holds " + std::to_string(rule.ours.size()) +
                                 " parameters",
                    std::to_string(placement.ours.size()));
      std::int64_t outputs = 0;
      for (const NamedTensor& part : placement.ours) outputs += part.type.shape[0];
      placement.shape = placement.ours.front().type.shape;
      placement.shape[0] = outputs;
      if (placement.transposed && placement.shape.size() == 2) std::swap(placement.shape[0], placement.shape[1]);
      result.push_back(std::move(placement));
    }
  }
  if (!left.empty()) throw Error("model", family.name + " must have a name for every parameter", "'" + left.begin()->first + "'");
  return result;
}

bool is_ignored(const Family& family, const std::string& name) {
  static const std::regex number("\\.[0-9]+\\.");
  const std::string pattern = std::regex_replace(name, number, "." + std::string(kIndex) + ".");
  for (const std::string& ignored : family.ignored)
    if (ignored == pattern || ignored == family.prefix + pattern) return true;
  return false;
}

void take_part(const TensorPlace& placement, std::size_t index, std::span<const float> theirs, std::span<float> ours) {
  each_element(placement, index, [&](std::size_t a, std::size_t b) { ours[b] = theirs[a]; });
}

void put_part(const TensorPlace& placement, std::size_t index, std::span<const float> ours, std::span<float> theirs) {
  each_element(placement, index, [&](std::size_t a, std::size_t b) { theirs[a] = ours[b]; });
}

}  // namespace meshloom::trainer
