// The tree of modules, which is built from the tree of configs.
//
// A module is built from its config. It knows its path, owns its children and declares its parameters; it holds no
// values. Any module can be replaced by another one with the same interface, because of three rules:
//   - A parent gives a child its dimensions (`Dims`, defined by the child's interface) and reads nothing else of its config.
//   - What a child needs from further up it asks for by type (inherited<T>()); an ancestor offers it by provide().
//   - How a module is called is part of its interface; everything else about the call is in the Context.
//
// An interface is a class X : Module with
//   struct Dims { ... };                                    set by the parent, and not part of a config's text
//   struct Config : Module::Config { using Built = X; using Dims = X::Dims; Dims dims; };
// An implementation is a class Y : X with its own Config and a constructor Y(const Config&, const Place&).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/config/config.h"
#include "layers/core/parameter.h"
#include "layers/core/type_map.h"

namespace meshloom::layers {

class Module;

// The place of a module in the tree. The root has no parent, and its path is "". An inner module, which a wrapper
// builds, has its parent's name and path.
struct Place {
  const Module* parent = nullptr;
  std::string name = {};
  bool inner = false;
};

class Module {
 public:
  struct Config : layers::Config {
    virtual std::unique_ptr<Module> build(const Place& place) const = 0;
    // The longest sequence that a model with this node accepts; 0 = no limit.
    virtual std::int64_t max_sequence() const { return 0; }
  };

  explicit Module(const Place& place);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // "decoder/stack/layer0"
  const std::vector<std::unique_ptr<Module>>& children() const { return children_; }
  // What this module declares itself, in the order of the declarations.
  const std::deque<Parameter>& parameters() const { return parameters_; }
  const std::deque<State>& states() const { return states_; }
  // Calls fn for this module and then, depth first, for its children in the order in which they were built.
  void visit(const std::function<void(const Module&)>& fn) const;

 protected:
  // Builds a child. The reference is valid as long as this module is.
  template <typename C>
  typename C::Built& child(const std::string& name, const Child<C>& config, const typename C::Dims& dims) {
    take_name(name);
    return build(Place{this, name}, config, dims);
  }
  // Builds the child of a wrapper in the wrapper's own place: the child's parameters have the paths and the initial
  // values that they would have without the wrapper. It is called in the wrapper's context: inner.forward(ctx, ...).
  template <typename C>
  typename C::Built& inner(const Child<C>& config, const typename C::Dims& dims) {
    return build(Place{this, {}, true}, config, dims);
  }
  const Parameter& parameter(const std::string& name, kernels::Shape shape, std::vector<std::string> axes,
                             const Child<Initializer>& init);
  // A frozen parameter of the given type that holds, as `storage` encodes it, a tensor which `init` initialises.
  // storage.source is the tensor's name in this module, not its path.
  const Parameter& quantized_parameter(const std::string& name, kernels::TensorType type,
                                       std::vector<std::string> axes, const Child<Initializer>& init,
                                       QuantizedStorage storage);
  const State& state(const std::string& name, kernels::TensorType type, std::vector<std::string> axes);

  // Offers a value to the descendants that are built after this call.
  template <typename T>
  void provide(T value) {
    type_map_.put(std::move(value));
  }
  // The value that the nearest ancestor provides, or nullptr.
  template <typename T>
  const T* inherited() const {
    return parent_ ? parent_->type_map_.template find<T>() : nullptr;
  }

  // Throws Error at this module's path.
  [[noreturn]] void fail(const std::string& rule, const std::string& found) const;

  // Marks the parameters that this module declares from now on as an adapter's (Parameter::adapter).
  void declare_adapter() { adapter_ = true; }

 private:
  template <typename C>
  typename C::Built& build(const Place& place, const Child<C>& config, const typename C::Dims& dims) {
    if (!config) fail("child '" + place.name + "' must not be none", "none");
    Child<C> sized = config;
    sized->dims = dims;
    auto* built = dynamic_cast<typename C::Built*>(&add_child(place, *sized));
    if (!built) fail("child '" + place.name + "' must be built with the interface of its config", {});
    return *built;
  }
  Module& add_child(const Place& place, const Config& config);
  void take_name(const std::string& name);

  const Module* parent_;
  std::string name_, path_;
  TypeMap type_map_;
  std::vector<std::string> names_;  // of children, parameters and states, which share one name space
  std::vector<std::unique_ptr<Module>> children_;
  std::deque<Parameter> parameters_;
  std::deque<State> states_;
  bool adapter_ = false;
};

// Provided by a stack to each of its layers.
struct Depth {
  std::int64_t layers;     // how many layers the stack has (see DepthScaledNormal)
  std::int64_t index = 0;  // which of them this is, counted from 0
};

// Provided by a module whose descendants' parameters are not trained.
struct Frozen {};

// Throws Error, at `where`, unless the name is of lower-case letters, digits and underscores, a letter first.
void check_name(const std::string& where, const std::string& name);
// The path as messages show it: that of the root is "model".
std::string display_path(const std::string& path);
std::string join(const std::string& path, const std::string& name);

}  // namespace meshloom::layers
