// The tree of modules, built from the tree of configs.
//
// A module is made from its config, knows its path, owns its children and declares its parameters; it holds
// no values. Rules that keep every module replaceable by another of the same interface:
//   - A parent gives a child its dimensions (`Dims`, by the child's interface) and reads nothing of its
//   config.
//   - What a child needs from further up it asks for by type (inherited<T>()), and an ancestor offers
//   (provide()).
//   - How a module is called is in its interface; everything else about the call is in the Context.
//
// An interface is a class X : Module with
//   struct Dims { ... };                                    set by the parent, part of no text
//   struct Config : Module::Config { using Built = X; using Dims = X::Dims; Dims dims; };
// and an implementation a class Y : X with its own Config and Y(const Config&, const Place&).
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

// Where a module stands: the root has no parent and its path is "". An inner module stands in its parent's
// own place, with the parent's name and path.
struct Place {
  const Module* parent = nullptr;
  std::string name = {};
  bool inner = false;
};

class Module {
 public:
  struct Config : layers::Config {
    virtual std::unique_ptr<Module> build(const Place& place) const = 0;
    // The longest sequence a model with this node takes; 0 = no limit.
    virtual std::int64_t max_sequence() const { return 0; }
  };

  explicit Module(const Place& place);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // "decoder/stack/layer0"
  const std::vector<std::unique_ptr<Module>>& children() const { return children_; }
  // Own declarations, in order.
  const std::deque<Parameter>& parameters() const { return parameters_; }
  const std::deque<State>& states() const { return states_; }
  // This module, then its children, depth first in the order they were built.
  void visit(const std::function<void(const Module&)>& fn) const;

 protected:
  // Builds a child. The reference stays valid as long as this module lives.
  template <typename C>
  typename C::Built& child(const std::string& name, const Child<C>& config, const typename C::Dims& dims) {
    take_name(name);
    return build(Place{this, name}, config, dims);
  }
  // Builds a child in this module's own place: its parameters have the names, and start with the numbers,
  // that they have without this module around them. It is called in this module's context: inner.forward(ctx,
  // ...).
  template <typename C>
  typename C::Built& inner(const Child<C>& config, const typename C::Dims& dims) {
    return build(Place{this, {}, true}, config, dims);
  }
  const Parameter& parameter(const std::string& name, kernels::Shape shape, std::vector<std::string> axes,
                             const Child<Initializer>& init);
  // One that is kept as `packing` makes it from a tensor, which `init` fills, and never learns. Of the packing the
  // source's name in this module is given, not its path. Throws Error below experts.
  const Parameter& packed_parameter(const std::string& name, kernels::TensorType type,
                                    std::vector<std::string> axes, const Child<Initializer>& init,
                                    Packing packing);
  const State& state(const std::string& name, kernels::TensorType type, std::vector<std::string> axes);

  // For descendants built after this call.
  template <typename T>
  void provide(T value) {
    bag_.put(std::move(value));
  }
  // From the nearest ancestor that provides it, or nullptr.
  template <typename T>
  const T* inherited() const {
    return parent_ ? parent_->bag_.template find<T>() : nullptr;
  }

  // Throws Error at this module's path.
  [[noreturn]] void fail(const std::string& rule, const std::string& found) const;

  // What this module declares from here on is an adapter's: see Parameter::adapter.
  void declare_adapter() { adapter_ = true; }

 private:
  template <typename C>
  typename C::Built& build(const Place& place, const Child<C>& config, const typename C::Dims& dims) {
    if (!config) fail("child '" + place.name + "' is needed", "none");
    Child<C> sized = config;
    sized->dims = dims;
    auto* built = dynamic_cast<typename C::Built*>(&add_child(place, *sized));
    if (!built) fail("child '" + place.name + "' was built as another interface than its config's", {});
    return *built;
  }
  Module& add_child(const Place& place, const Config& config);
  void take_name(const std::string& name);

  const Module* parent_;
  std::string name_, path_;
  Bag bag_;
  std::vector<std::string> names_;  // of children, parameters and state: one name space
  std::vector<std::unique_ptr<Module>> children_;
  std::deque<Parameter> parameters_;
  std::deque<State> states_;
  bool adapter_ = false;
};

// Provided by a stack to each of its layers: how many of them there are (see DepthScaledNormal), and which it is, from 0.
struct Depth {
  std::int64_t layers, index = 0;
};

// Provided by a module whose descendants' parameters do not learn.
struct Frozen {};

// Lower-case letters, digits and underscores, a letter first. Throws Error.
void check_name(const std::string& where, const std::string& name);
// `path` for messages: the root's is "model".
std::string shown(const std::string& path);
std::string join(const std::string& path, const std::string& name);

}  // namespace meshloom::layers
