#include "trainer/chat/jinja/run.h"

#include <algorithm>

#include "hal/error.h"

namespace meshloom::trainer::jinja {

const Value* Scope::find(int name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get())
    for (const auto& [known, value] : scope->variables)
      if (known == name) return &value;
  return nullptr;
}

void Scope::set(int name, Value value) {
  for (auto& [known, held] : variables)
    if (known == name) {
      held = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(Run& run, const std::string& name) {
  const Value* found = attributes.find(run, make_text(run, name));
  return found ? std::optional(*found) : std::nullopt;
}

std::string Namespace::repr(Run& run) {
  std::string out = "<Namespace {";
  for (std::size_t i = 0; i < attributes.items.size(); ++i) {
    const auto& [name, value] = attributes.items[i];
    out += (i > 0 ? ", " : "") + jinja::repr(run, name) + ": " + jinja::repr(run, value);
    run.check_text(out.size());
  }
  return out + "}>";
}

void set_attribute(Run& run, Namespace& space, const Value& name, const Value& value) {
  if (name.text() && name.text()->bytes.starts_with('_'))
    run.fail("an attribute of a namespace must not start with '_'", name.text()->bytes);
  run.bytes(128);
  if (!space.attributes.set(run, name, value))
    run.fail("a list or a dict cannot be the name of an attribute", name.type());
}

Run::~Run() {
  for (const auto& scope : scopes_) scope->variables.clear();
  for (const auto& space : namespaces_) space->attributes = {};
}

void Run::fail(std::string rule, std::string found) const {
  if (found.size() > 200) found = found.substr(0, 200) + "...";
  throw Error(where_ + " line " + std::to_string(line), std::move(rule), std::move(found));
}

void Run::step(std::size_t count) {
  if ((steps_ += count) > kMaxSteps)
    fail("a chat template must end within " + std::to_string(kMaxSteps) + " steps");
}

void Run::bytes(std::size_t count) {
  if ((bytes_ += count) > kMaxBytes)
    fail("a chat template must not make more than " + std::to_string(kMaxBytes >> 20) + " MiB of values");
}

void Run::check_text(std::size_t bytes) const {
  if (bytes > kMaxText)
    fail("a text of a chat template must not have more than " + std::to_string(kMaxText >> 20) + " MiB",
         std::to_string(bytes) + " bytes");
}

Run::Nested::Nested(Run& run) : run_(run) {
  if (run.calls_ >= kMaxCalls)
    run.fail("evaluations of a chat template must not nest deeper than " + std::to_string(kMaxCalls) +
             " levels");
  ++run.calls_;
}

void Run::write(std::string_view text) {
  check_text(output_->size() + text.size());
  bytes(text.size());
  *output_ += text;
}

std::shared_ptr<Scope> Run::enter(std::shared_ptr<Scope> parent) const {
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(parent);
  return scope;
}

std::shared_ptr<Namespace> Run::make_namespace() {
  bytes(128);
  auto space = std::make_shared<Namespace>();
  namespaces_.push_back(space);
  return space;
}

BoundArguments::BoundArguments(Run& run, const char* function, Arguments& arguments,
                               std::vector<const char*> names, std::size_t required)
    : run_(run), function_(function), names_(std::move(names)), values_(names_.size()) {
  const std::string who(function);
  if (arguments.positional.size() > names_.size())
    run.fail(who + " takes at most " + std::to_string(names_.size()) + " arguments",
             std::to_string(arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) run.fail(who + " has no parameter of this name", name);
    auto& slot = values_[static_cast<std::size_t>(place - names_.begin())];
    if (slot) run.fail(who + " is given a parameter twice", name);
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) run.fail(who + " lacks its argument '" + names_[i] + "'");
}

const Value& BoundArguments::operator[](std::size_t at) const {
  static const Value kUndefined;
  return values_[at] ? *values_[at] : kUndefined;
}

bool BoundArguments::boolean(std::size_t at, bool otherwise) const {
  return has(at) ? values_[at]->truth(run_) : otherwise;
}

std::int64_t BoundArguments::integer(std::size_t at, std::int64_t otherwise) const {
  if (!has(at)) return otherwise;
  const auto value = values_[at]->whole();
  if (!value)
    run_.fail(std::string(function_) + ": '" + names_[at] + "' must be an integer", values_[at]->type());
  return *value;
}

const std::string& BoundArguments::text(std::size_t at) const {
  const Text* text = (*this)[at].text();
  if (!text) run_.fail(std::string(function_) + ": '" + names_[at] + "' must be text", (*this)[at].type());
  return text->bytes;
}

}  // namespace meshloom::trainer::jinja
