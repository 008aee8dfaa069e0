#include "layers/core/module.h"

#include <algorithm>

#include "kernels/program/sizes.h"
#include "layers/core/axes.h"
#include "layers/core/experts.h"

namespace meshloom::layers {

std::string display_path(const std::string& path) { return path.empty() ? "model" : path; }

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

void check_name(const std::string& where, const std::string& name) {
  const bool good =
      !name.empty() && name[0] >= 'a' && name[0] <= 'z' && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      });
  if (!good)
    throw Error(display_path(where), "a name must be of lower-case letters, digits and '_', a letter first",
                "'" + name + "'");
}

Module::Module(const Place& place)
    : parent_(place.parent),
      name_(place.inner ? place.parent->name() : place.name),
      path_(place.inner    ? place.parent->path()
            : place.parent ? join(place.parent->path(), place.name)
                           : ""),
      type_map_(place.parent ? &place.parent->type_map_ : nullptr) {}

void Module::visit(const std::function<void(const Module&)>& fn) const {
  fn(*this);
  for (const auto& child : children_) child->visit(fn);
}

void Module::fail(const std::string& rule, const std::string& found) const {
  throw Error(display_path(path_), rule, found);
}

void Module::take_name(const std::string& name) {
  check_name(path_, name);
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    fail("names of children, parameters and state must be used only once", "'" + name + "' again");
  names_.push_back(name);
}

Module& Module::add_child(const Place& place, const Config& config) {
  try {
    children_.push_back(config.build(place));
  } catch (const Error& error) {
    if (error.where() != "config") throw;
    // A required field that was read before it was set: its error does not know the path yet.
    throw Error((place.inner ? display_path(path_) : join(path_, place.name)) + " (" +
                    std::string(config.class_name()) + ")",
                error.rule(), error.found());
  }
  return *children_.back();
}

const Parameter& Module::parameter(const std::string& name, kernels::Shape shape,
                                   std::vector<std::string> axes, const Child<Initializer>& init) {
  take_name(name);
  for (const std::int64_t dim : shape)
    if (dim <= 0) fail("parameter '" + name + "' must have positive dimensions", kernels::to_string(shape));
  if (axes.size() != shape.size())
    fail("parameter '" + name + "' must have one axis per dimension of " + kernels::to_string(shape),
         std::to_string(axes.size()));
  if (!init) fail("parameter '" + name + "' must have an initialiser", "none");
  const Depth* depth = inherited<Depth>();
  const Child<Initializer> copy = init;
  Parameter parameter;
  parameter.path = join(path_, name);
  parameter.decay = shape.size() >= 2;  // matrices; not norms and biases
  if (const Experts* experts = inherited<Experts>()) {
    shape.insert(shape.begin(), experts->count);
    axes.insert(axes.begin(), axis::kExpert);
  }
  parameter.type = {kernels::DType::f32, std::move(shape)};
  kernels::require_countable("parameter '" + parameter.path + "'", parameter.type);
  parameter.axes = std::move(axes);
  std::unique_ptr<layers::Config> owned = copy->clone();
  parameter.init.reset(static_cast<const Initializer*>(owned.release()));
  parameter.frozen = inherited<Frozen>() != nullptr;
  parameter.adapter = adapter_;
  parameter.depth = depth ? depth->layers : 1;
  parameters_.push_back(std::move(parameter));
  return parameters_.back();
}

const Parameter& Module::quantized_parameter(const std::string& name, kernels::TensorType type,
                                             std::vector<std::string> axes, const Child<Initializer>& init,
                                             QuantizedStorage storage) {
  (void)parameter(name, type.shape, std::move(axes), init);
  Parameter& parameter = parameters_.back();
  parameter.type.dtype = type.dtype;
  if (parameter.type.rank() > type.rank())  // below experts
    storage.type.shape.insert(storage.type.shape.begin(), parameter.type.dim(0));
  parameter.frozen = true;
  storage.source = join(path_, storage.source);
  parameter.storage = std::make_shared<const QuantizedStorage>(std::move(storage));
  return parameter;
}

const State& Module::state(const std::string& name, kernels::TensorType type, std::vector<std::string> axes) {
  take_name(name);
  if (axes.size() != type.shape.size())
    fail("state '" + name + "' must have one axis per dimension of " + kernels::to_string(type.shape),
         std::to_string(axes.size()));
  states_.push_back({join(path_, name), std::move(type), std::move(axes)});
  return states_.back();
}

}  // namespace meshloom::layers
