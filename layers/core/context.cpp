#include "layers/core/context.h"

#include "layers/core/module.h"

namespace meshloom::layers {

namespace {

thread_local Context* innermost = nullptr;

}  // namespace

Context::Context(kernels::Builder& builder, Record& record, Key key, bool training)
    : builder_(builder), record_(record), before_(innermost), key_(key), training_(training) {
  builder_.path = path_;
  innermost = this;
}

Context::Context(Context& parent, const std::string& name)
    : builder_(parent.builder_),
      record_(parent.record_),
      parent_(&parent),
      before_(innermost),
      name_(name),
      path_(join(parent.path_, name)),
      key_(fold_in(parent.key_, name)),
      training_(parent.training_),
      type_map_(&parent.type_map_) {
  builder_.path = path_;
  innermost = this;
}

Context::~Context() {
  builder_.path = parent_ ? parent_->path_ : "";
  innermost = before_;
}

Context* Context::current() { return innermost; }

ContextScope::ContextScope(Context& context) : before_(innermost) { innermost = &context; }
ContextScope::~ContextScope() { innermost = before_; }

Context Context::child(const std::string& name) {
  check_name(path_, name);
  if (!children_.insert(name).second)
    throw Error(display_path(path_), "a second call of the same child needs a name of its own",
                "'" + name + "' again");
  return Context(*this, name);
}

Tensor Context::parameter(const Parameter& parameter) {
  const auto found = record_.parameters.find(parameter.path);
  if (found == record_.parameters.end())
    throw Error(display_path(path_), "a parameter must belong to a module of the model",
                "'" + parameter.path + "'");
  record_.used.insert(parameter.path);
  return found->second;
}

Tensor Context::state(const State& state) {
  const auto found = record_.states.find(state.path);
  if (found == record_.states.end())
    throw Error(display_path(path_), "a state must belong to a module of the model", "'" + state.path + "'");
  return found->second;
}

Tensor Context::rng_state() {
  if (!record_.rng_state)
    record_.rng_state = builder_.input("rng_state", {kernels::DType::i32, {3}}, kernels::Role::input);
  return record_.rng_state;
}

Tensor Context::shared(const std::string& what, const std::function<Tensor(kernels::Builder&)>& make) const {
  const auto found = record_.shared.find(what);
  if (found != record_.shared.end()) return found->second;
  const std::string here = std::exchange(builder_.path, std::string());
  const Tensor made = make(builder_);
  builder_.path = here;
  return record_.shared[what] = made;
}

void Context::update(const State& state, Tensor next) {
  if (!(this->state(state).type() == next.type()))
    throw Error(display_path(path_),
                "the next value of '" + state.path + "' must be a " + to_string(state.type),
                to_string(next.type()));
  if (!record_.updates.emplace(state.path, next).second)
    throw Error(display_path(path_), "a state must be updated once per step", "'" + state.path + "' again");
}

Tensor Context::cache(const std::string& name, const kernels::TensorType& type, CacheUnit unit) {
  check_name(path_, name);
  (unit == CacheUnit::page ? record_.cache_bytes.page : record_.cache_bytes.sequence) +=
      type.bytes() / type.dim(0);
  return builder_.input(join(path_, name), type, kernels::Role::cache);
}

Tensor Context::sequence_slots(std::int64_t size, std::int64_t tokens) {
  record_.cached_rows.insert(size);
  return step_input("sequence_slots/" + std::to_string(size), {kernels::DType::i32, {tokens}});
}

void Context::update_cache(Tensor cache, Tensor next) {
  const std::string& name = builder_.program().value(cache.id).name;
  if (!(cache.type() == next.type()))
    throw Error(display_path(path_), "the next value of '" + name + "' must be a " + to_string(cache.type()),
                to_string(next.type()));
  for (const auto& [taken, unused] : record_.caches)
    if (taken.id == cache.id)
      throw Error(display_path(path_), "a cache must be updated once per run", "'" + name + "' again");
  record_.caches.emplace_back(cache, next);
}

Tensor Context::step_input(const std::string& name, const kernels::TensorType& type) {
  const auto found = record_.step_inputs.find(name);
  if (found == record_.step_inputs.end())
    return record_.step_inputs[name] = builder_.input(name, type, kernels::Role::input);
  if (!(found->second.type() == type))
    throw Error(display_path(path_), "the input '" + name + "' must be one of all layers",
                to_string(type) + " beside " + to_string(found->second.type()));
  return found->second;
}

void Context::summary(const std::string& name, Tensor value) {
  check_name(path_, name);
  if (value.type().elements() != 1)
    throw Error(display_path(path_), "summary '" + name + "' must be one number", to_string(value.type()));
  if (!record_.summaries.emplace(join(path_, name), value).second)
    throw Error(display_path(path_), "a summary must be given only once", "'" + name + "' again");
}

void Context::output(const std::string& name, Tensor value) {
  check_name(path_, name);
  const std::string path = join(path_, name);
  for (const auto& [taken, unused] : record_.outputs)
    if (taken == path)
      throw Error(display_path(path_), "an output must be given only once", "'" + name + "' again");
  record_.outputs.emplace_back(path, value);
}

Tensor Context::output_of(const std::string& path) const {
  const std::string wanted = join(path_, path);
  for (const auto& [at, value] : record_.outputs)
    if (at == wanted) return value;
  std::string known;
  for (const auto& [at, value] : record_.outputs) known += (known.empty() ? "" : ", ") + at;
  throw Error(display_path(path_), "some call below must leave an output '" + path + "'",
              known.empty() ? "none" : known);
}

std::vector<Tensor> Context::outputs_named(const std::string& name) const {
  const std::string prefix = path_.empty() ? "" : path_ + "/", suffix = "/" + name;
  std::vector<Tensor> found;
  for (const auto& [at, value] : record_.outputs) {
    if (at.rfind(prefix, 0) != 0) continue;
    const bool named =
        at == prefix + name || (at.size() > suffix.size() && at.substr(at.size() - suffix.size()) == suffix);
    if (named) found.push_back(value);
  }
  return found;
}

std::string Context::tag() const {
  return parent_ && !parent_->name_.empty() ? parent_->name_ + "." + name_ : name_;
}

Tensor Context::mark(Tensor value, const std::string& tag, std::vector<std::string> axes) const {
  builder_.tag(value, tag);
  builder_.axes(value, std::move(axes));
  return value;
}

void Context::missing(const char* what) const {
  throw Error(display_path(path_), std::string("must be called with ") + what + " in its context", "none");
}

}  // namespace meshloom::layers
