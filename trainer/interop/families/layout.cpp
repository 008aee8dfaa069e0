#include "trainer/interop/families/layout.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "hal/error.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kIndex = "{i}", kExpert = "{e}";

std::string numbered(std::string text, std::int64_t number, std::string_view mark = kIndex) {
  if (const std::size_t at = text.find(mark); at != std::string::npos)
    text.replace(at, mark.size(), std::to_string(number));
  return text;
}

// The indices of the layers that occur in the paths.
std::set<std::int64_t> layers_of(const std::vector<NamedTensor>& parameters) {
  static const std::string kMark = "/layer";
  std::set<std::int64_t> layers;
  for (const NamedTensor& parameter : parameters)
    if (const std::size_t at = parameter.name.find(kMark); at != std::string::npos) {
      std::int64_t index = 0;
      const char* first = parameter.name.data() + at + kMark.size();
      if (std::from_chars(first, parameter.name.data() + parameter.name.size(), index).ec == std::errc())
        layers.insert(index);
    }
  return layers;
}

// The shape of the part of a parameter that the tensor has: all of it, or one expert.
kernels::Shape shape_of(const TensorMapping& mapping, const NamedTensor& parameter) {
  kernels::Shape shape = parameter.type.shape;
  if (mapping.expert >= 0) shape.erase(shape.begin());
  return shape;
}

// Calls fn(index in the tensor, index in the parameter) for each element of part `index`.
template <typename Fn>
void each_element(const TensorMapping& mapping, std::size_t index, Fn fn) {
  std::int64_t first = 0;  // the part's first output
  for (std::size_t i = 0; i < index; ++i) first += shape_of(mapping, mapping.parameters[i])[0];
  const kernels::Shape shape = shape_of(mapping, mapping.parameters[index]);
  const std::int64_t outputs = shape[0], inputs = shape.size() > 1 ? shape[1] : 1;
  const bool across = mapping.transposed && shape.size() > 1;
  const std::int64_t width = across ? mapping.shape[1] : inputs;
  const std::int64_t before =
      std::max<std::int64_t>(mapping.expert, 0) * outputs * inputs;  // elements of the experts before
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t i = 0; i < inputs; ++i)
      fn(static_cast<std::size_t>(across ? i * width + first + o : (first + o) * width + i),
         static_cast<std::size_t>(before + o * inputs + i));
}

// The name with kIndex in place of every number between dots.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t dot = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, dot - begin);
    const bool between = begin > 0 && dot < name.size();
    const bool number = between && !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin > 0 ? "." : "") + (number ? std::string(kIndex) : part);
    begin = dot + 1;
  }
  return result;
}

}  // namespace

std::vector<TensorMapping> tensor_mappings(const Family& family, const std::vector<NamedTensor>& parameters) {
  std::map<std::string, const NamedTensor*> left;
  for (const NamedTensor& parameter : parameters) left[parameter.name] = &parameter;
  const std::set<std::int64_t> layers = layers_of(parameters), once{0};
  std::vector<TensorMapping> result;
  for (const TensorRule& rule : family.tensors) {
    const bool layered = rule.hf_name.find(kIndex) != std::string::npos;
    for (const std::int64_t layer : layered ? layers : once) {
      TensorMapping mapping{numbered(rule.hf_name, layer), rule.transposed, {}, -1, {}};
      for (const std::string& path : rule.parameters)
        if (const auto it = left.find(numbered(path, layer)); it != left.end()) {
          mapping.parameters.push_back(*it->second);
          left.erase(it);
        }
      if (mapping.parameters.empty()) continue;  // the model, or this layer of it, has no such parameters
      if (mapping.parameters.size() != rule.parameters.size())
        throw Error("model",
                    family.name + "'s " + mapping.hf_name + " holds " +
                        std::to_string(rule.parameters.size()) + " parameters",
                    std::to_string(mapping.parameters.size()));
      const std::string name = mapping.hf_name;
      const bool stacked = name.find(kExpert) != std::string::npos;
      const std::int64_t copies = stacked ? mapping.parameters.front().type.shape[0] : 1;
      for (std::int64_t copy = 0; copy < copies; ++copy) {
        if (stacked) mapping.expert = copy;
        mapping.hf_name = numbered(name, copy, kExpert);
        std::int64_t outputs = 0;
        for (const NamedTensor& part : mapping.parameters) outputs += shape_of(mapping, part)[0];
        mapping.shape = shape_of(mapping, mapping.parameters.front());
        mapping.shape[0] = outputs;
        if (mapping.transposed && mapping.shape.size() == 2) std::swap(mapping.shape[0], mapping.shape[1]);
        result.push_back(mapping);
      }
    }
  }
  if (!left.empty())
    throw Error("model", family.name + " must have a name for every parameter",
                "'" + left.begin()->first + "'");
  return result;
}

bool is_ignored_tensor(const Family& family, const std::string& name) {
  const std::string pattern = without_numbers(name);
  for (const std::string& ignored : family.ignored_tensors)
    if (ignored == pattern || ignored == family.prefix + pattern) return true;
  return false;
}

void extract_part(const TensorMapping& mapping, std::size_t index, std::span<const float> tensor,
                  std::span<float> parameter) {
  each_element(mapping, index, [&](std::size_t a, std::size_t b) { parameter[b] = tensor[a]; });
}

void insert_part(const TensorMapping& mapping, std::size_t index, std::span<const float> parameter,
                 std::span<float> tensor) {
  each_element(mapping, index, [&](std::size_t a, std::size_t b) { tensor[a] = parameter[b]; });
}

}  // namespace meshloom::trainer
