// The invocation context: everything about one call of a module but its tensors.
//
// Contexts form the tree of *calls*. It mirrors the tree of modules but is not the same: a module may be called twice
// under two names, and a shared module is called in the context of its caller, with its own parameters. A context lives
// on the stack and ends with the C++ scope that holds it.
#pragma once

#include <cstdint>
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

// What a cache has a part for: each page of a pool of them, or each of the sequences that run at once.
enum class CacheUnit : std::uint8_t { page, sequence };
// Bytes of one page and of one sequence, in all caches of a program together.
struct CacheBytes {
  std::int64_t page = 0, sequence = 0;
};

// What all calls of one trace share, by path.
struct Record {
  std::map<std::string, Tensor> parameters;             // filled before the first call
  std::map<std::string, Tensor> states;                 // filled before the first call
  std::set<std::string> used;                           // paths of the parameters that some call has read
  std::map<std::string, Tensor> summaries;              // scalars (1) to report
  std::vector<std::pair<std::string, Tensor>> outputs;  // in the order of the calls
  std::map<std::string, Tensor> updates;                // path of a state -> its next value
  Tensor rng_state;  // the input "rng_state"; none if no call draws random numbers
  std::vector<std::pair<Tensor, Tensor>> caches;  // see Context::cache: a cache and its next value
  CacheBytes cache_bytes;
  std::set<std::int64_t> cached_rows;         // sizes that Context::sequence_slots was asked for
  std::map<std::string, Tensor> shared;       // see Context::shared
  std::map<std::string, Tensor> step_inputs;  // see Context::step_input
};

class Context {
 public:
  // The root context, whose path is "". `builder` and `record` must outlive it.
  Context(kernels::Builder& builder, Record& record, Key key = {}, bool training = true);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The innermost context of this thread, for functions that are only given tensors. nullptr outside of calls, and in a
  // thread that has not entered a context by a ContextScope.
  static Context* current();

  // A context for a call below this one. Throws Error if the name was used before: a second call needs its own name.
  Context child(const std::string& name);

  kernels::Builder& builder() const { return builder_; }
  const std::string& path() const { return path_; }
  bool training() const { return training_; }
  // The key of this call's random numbers: the run's key with the path folded in, so that it does not depend on
  // siblings.
  Key key() const { return key_; }
  // The state of the random number generator at run time, which is used together with a key: the input "rng_state" (3)
  // i32 of the program. It holds the run's seed, the step, and the index of the first row of the step's batch
  // (kernels/dropout).
  Tensor rng_state();

  // A value that does not depend on the layer: the first call that asks for `what` makes it, at the root of the model,
  // and later calls get the same tensor.
  Tensor shared(const std::string& what, const std::function<Tensor(kernels::Builder&)>& make) const;

  // The tensor of a parameter. Throws Error if its module is not in the model.
  Tensor parameter(const Parameter& parameter);
  Tensor state(const State& state);
  // Sets the value that the state has in the next step; once per state.
  void update(const State& state, Tensor next);

  // A tensor that the program keeps from run to run for this call, PATH/name. It belongs to the program and not to the
  // model, so no checkpoint has it. What it holds at first is not defined. Its first dimension counts units.
  Tensor cache(const std::string& name, const kernels::TensorType& type, CacheUnit unit);
  // The input "sequence_slots/SIZE" (tokens) i32 of a step of inference: the tokens' rows in a pool that has `size` of them for each
  // sequence. The token at position p of sequence s has row s size + p mod size, and padding a negative one.
  Tensor sequence_slots(std::int64_t size, std::int64_t tokens);
  // Sets the value that a cache has in the next run; once per cache.
  void update_cache(Tensor cache, Tensor next);

  // An input of a step of inference that some layers read beside those that every step has (InferenceStep): all calls that ask for
  // the name get one tensor.
  Tensor step_input(const std::string& name, const kernels::TensorType& type);

  // Reports a scalar (1) as PATH/name; once per name.
  void summary(const std::string& name, Tensor value);
  // Leaves a value for callers further up, as PATH/name; once per name.
  void output(const std::string& name, Tensor value);
  // The output that a call below this one left at `path`, such as "layer0/attention/gates". Throws Error if there is
  // none.
  Tensor output_of(const std::string& path) const;
  // Every output of this name below this context, in the order of the calls.
  std::vector<Tensor> outputs_named(const std::string& name) const;

  // Call information, by type: what is put here is found by this call and every call below it.
  template <typename T>
  void put(T value) {
    type_map_.put(std::move(value));
  }
  template <typename T>
  const T* find() const {
    return type_map_.find<T>();
  }
  // find() for information that the call cannot do without: throws Error, which calls it `what`.
  template <typename T>
  const T& get(const char* what) const {
    const T* value = find<T>();
    if (!value) missing(what);
    return *value;
  }

  // The tag of the values that this call makes: the last two names of its path, "attention.q_proj".
  std::string tag() const;
  // Gives a value its tag and its logical axes, and returns it.
  Tensor mark(Tensor value, const std::string& tag, std::vector<std::string> axes) const;

 private:
  Context(Context& parent, const std::string& name);
  [[noreturn]] void missing(const char* what) const;

  kernels::Builder& builder_;
  Record& record_;
  Context* parent_ = nullptr;
  Context* before_;  // the current context before this one
  std::string name_, path_;
  Key key_;
  bool training_;
  TypeMap type_map_;
  std::set<std::string> children_;
};

// Makes `context` the current one of this thread during the scope's life. Two threads must not use one context at once.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* before_;
};

// Call information that a model puts for everything below it: the sizes of activations (batch * sequence, features).
struct Tokens {
  std::int64_t batch, sequence;
};

}  // namespace meshloom::layers
