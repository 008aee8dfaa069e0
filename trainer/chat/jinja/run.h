// The state of one rendering: its bounds, the current line, and the output so far.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/chat/jinja/value.h"

namespace meshloom::trainer::jinja {

// Templates are untrusted, so everything that they could make large is bounded. A chat of a thousand messages
// of a thousand characters stays well below the bounds in all published templates but one, which copies its
// whole text for every message.
inline constexpr std::size_t kMaxSource = 1 << 20;    // bytes of a template
inline constexpr int kMaxNesting = 100;               // nested blocks and brackets in a template
inline constexpr int kMaxCalls = 1000;                // nested evaluations
inline constexpr std::size_t kMaxSteps = 10'000'000;  // evaluations, and items that functions visit
inline constexpr std::size_t kMaxBytes = 512 << 20;   // of all values that are created
inline constexpr std::size_t kMaxText = 16 << 20;     // bytes of one text, and so of the output
inline constexpr std::size_t kMaxRange = 100'000;     // Jinja2's own bound
inline constexpr std::int64_t kMaxRangeBound = std::int64_t{1} << 40;
inline constexpr int kMaxDepth = 100;  // nested lists

// Variables by the number that the parser gave their name. A macro keeps the scope in which it was defined.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;
  const Value* find(int name) const;  // in this scope or an outer one
  void set(int name, Value value);    // in this scope
};

struct Namespace final : Object {
  Dict attributes;
  std::string type() const override { return "Namespace"; }
  std::optional<Value> attribute(Run& run, const std::string& name) override;
  std::string repr(Run& run) override;
};

// Throws Error for a name that starts with "_", as transformers does.
void set_attribute(Run& run, Namespace& space, const Value& name, const Value& value);

class Run {
 public:
  Run(std::string where, std::optional<std::int64_t> now) : now(now), where_(std::move(where)) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Throws Error (where = the template and the line).
  [[noreturn]] void fail(std::string rule, std::string found = {}) const;
  // Count steps and bytes. Throw Error when there are too many.
  void step(std::size_t count = 1);
  void bytes(std::size_t count);
  // Throws Error when a text of so many bytes is too long, before it is created.
  void check_text(std::size_t bytes) const;

  // Counts the nesting of evaluations.
  class Nested {
   public:
    explicit Nested(Run& run);
    ~Nested() { --run_.calls_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Run& run_;
  };

  void write(std::string_view text);
  // Returns what `body` writes instead of adding it to the output.
  template <typename Body>
  std::string captured(Body&& body) {
    std::string text;
    std::string* const outer = std::exchange(output_, &text);
    const Restore restore{output_, outer};
    body();
    return text;
  }
  bool captures() const { return output_ != &text_; }

  std::shared_ptr<Scope> enter(std::shared_ptr<Scope> parent) const;
  void keep(std::shared_ptr<Scope> scope) { scopes_.push_back(std::move(scope)); }
  std::shared_ptr<Namespace> make_namespace();

  int line = 1;
  std::shared_ptr<Scope> scope;
  const std::optional<std::int64_t> now;
  bool marks_generation = false;
  std::vector<std::pair<std::size_t, std::size_t>> generated;  // byte ranges of text()
  std::string& text() { return text_; }

 private:
  struct Restore {
    std::string*& place;
    std::string* value;
    ~Restore() { place = value; }
  };
  std::string where_;
  std::size_t steps_ = 0, bytes_ = 0;
  int calls_ = 0;
  std::string text_;
  std::string* output_ = &text_;
  // Objects that may contain themselves; they are emptied at the end.
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// Sets a variable to a value until the end of the block.
template <typename T>
class ScopedValue {
 public:
  ScopedValue(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  ~ScopedValue() { place_ = std::move(before_); }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& place_;
  T before_;
};

// The arguments of a call, bound to the parameters of a function as in Python.
class BoundArguments {
 public:
  // Throws Error naming `function` for too many arguments, too few (`required`), unknown ones and duplicates.
  BoundArguments(Run& run, const char* function, Arguments& arguments, std::vector<const char*> names,
                 std::size_t required = 0);
  bool has(std::size_t at) const { return values_[at].has_value(); }
  // Undefined when it was not given.
  const Value& operator[](std::size_t at) const;
  bool boolean(std::size_t at, bool otherwise) const;
  std::int64_t integer(std::size_t at, std::int64_t otherwise) const;
  // Throws Error when it is no text.
  const std::string& text(std::size_t at) const;
  // Whether it was given and is not None.
  bool given(std::size_t at) const { return has(at) && !values_[at]->is_none(); }

 private:
  Run& run_;
  const char* function_;
  std::vector<const char*> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace meshloom::trainer::jinja
