// One invocation of one module: everything about a call that is not its tensors.
//
// A context belongs to a place in the tree of *calls*, which mirrors the tree of modules but is not the same:
// a module may be called twice under two names, and a shared module is called in the context of whoever calls
// it, with its own parameters. Contexts live on the stack; a child's scope ends with the C++ scope that holds
// it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/builder.h"
#include "layers/core/parameter.h"
#include "layers/core/random.h"
#include "layers/core/type_map.h"

namespace meshloom::layers {

using kernels::Tensor;

// What calls leave behind, by path.
struct Record {
  std::map<std::string, Tensor> parameters;             // filled before the first call
  std::map<std::string, Tensor> states;                 // the same
  std::set<std::string> used;                           // paths of parameters that some call has read
  std::map<std::string, Tensor> summaries;              // (1)
  std::vector<std::pair<std::string, Tensor>> outputs;  // in the order of the calls
  std::map<std::string, Tensor> updates;                // state path -> its next value
  Tensor rng_state;                                     // the input "rng_state", where some call draws
  std::map<std::string, Tensor> shared;                 // see Context::shared
};

class Context {
 public:
  // The root: path "". `builder` and `record` must outlive it.
  Context(kernels::Builder& builder, Record& record, Key key = {}, bool training = true);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The innermost context of this thread, for functions that get tensors only; nullptr outside of calls, and in threads
  // that have not entered one (ContextScope).
  static Context* current();

  // Throws Error when this context has had a child of that name: a second call needs a name of its own.
  Context child(const std::string& name);

  kernels::Builder& builder() const { return builder_; }
  const std::string& path() const { return path_; }
  bool training() const { return training_; }
  // Identifies the random stream of this call: folded along the path, whatever the siblings are.
  Key key() const { return key_; }
  // What a step draws its random numbers from, besides a key: the input "rng_state" (3) i32 of the program, which holds the
  // run's seed, the step and the first row of the step's batch (kernels/dropout).
  Tensor rng_state();

  // A value that hangs on no layer: `make` writes it, at the root of the model, for the first call that asks for `what`, and
  // later ones get the same.
  Tensor shared(const std::string& what, const std::function<Tensor(kernels::Builder&)>& make) const;

  // Throws Error when the model has no such parameter (a module that is not in the tree).
  Tensor parameter(const Parameter& parameter);
  Tensor state(const State& state);
  // The value the state has in the next step. Once per state.
  void update(const State& state, Tensor next);

  // A scalar (1) to report as PATH/name. Once per name.
  void summary(const std::string& name, Tensor value);
  // A value for callers further up, kept as PATH/name. Once per name.
  void output(const std::string& name, Tensor value);
  // What a call below this one left as `path` ("layer0/attention/gates"). Throws Error when there is none.
  Tensor output_of(const std::string& path) const;
  // Every output of that name below this context, in the order of the calls.
  std::vector<Tensor> outputs_named(const std::string& name) const;

  // Call information, by type: put here, found by every call below.
  template <typename T>
  void put(T value) {
    bag_.put(std::move(value));
  }
  template <typename T>
  const T* find() const {
    return bag_.find<T>();
  }
  // The same where the call cannot do without; `what` names it in the Error.
  template <typename T>
  const T& get(const char* what) const {
    const T* value = find<T>();
    if (!value) missing(what);
    return *value;
  }

  // "attention.q_proj": the last two names of the path, the tag of what this call makes.
  std::string tag() const;
  // Labels a value, and returns it.
  Tensor mark(Tensor value, const std::string& tag, std::vector<std::string> axes) const;

 private:
  Context(Context& parent, const std::string& name);
  [[noreturn]] void missing(const char* what) const;

  kernels::Builder& builder_;
  Record& record_;
  Context* parent_ = nullptr;
  Context* before_;  // what was current when this one came
  std::string name_, path_;
  Key key_;
  bool training_;
  Bag bag_;
  std::set<std::string> children_;
};

// Makes a context the current one of another thread while it lives. Two threads must not use one context at once.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* before_;
};

// Call information that a model gives to everything below it: activations are (batch * sequence, features).
struct Tokens {
  std::int64_t batch, sequence;
};

}  // namespace meshloom::layers
