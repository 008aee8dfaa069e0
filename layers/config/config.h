// Configs: a tree of typed nodes with value semantics. A config class lists its fields once, in fields(); printing,
// parsing, paths, comparison and replacement are all written over that list. Nothing here knows about tensors.
//
//   struct Embedding : TokenEmbedding {
//     struct Config : ConfigOf<Config, TokenEmbedding::Config> {
//       static constexpr std::string_view kName = "Embedding";
//       static constexpr std::string_view kAbout = "One learned vector per token.";
//       Required<std::int64_t> dim;
//       bool scaled = false;
//       Child<Initializer> init = Normal{};
//       void fields(FieldVisitor& v) override {
//         v("dim", dim, {"The number of features of a vector.", at_least(1)});
//         v("scaled", scaled, {"Whether vectors are multiplied by sqrt(dim)."});
//         v("init", init, {"How the vectors are initialised."});
//       }
//     };
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "hal/error.h"
#include "layers/config/about.h"

namespace meshloom::layers {

class FieldVisitor;

// The name of a type that has no kName: "Layer" for Layer::Config, "Input" for InputConfig.
template <typename T>
constexpr std::string_view type_name() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with T = meshloom::layers::Linear::Config; ...]"
  text.remove_prefix(text.find("T = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  if (text.ends_with("::Config")) text.remove_suffix(8);
  if (text.find('<') == text.npos && text.rfind("::") != text.npos) text.remove_prefix(text.rfind("::") + 2);
  if (text.size() > 6 && text.ends_with("Config")) text.remove_suffix(6);
  return text;
}

// The sentence that describes T; "" if it has none.
template <typename T>
constexpr std::string_view about_of() {
  if constexpr (requires { T::kAbout; })
    return T::kAbout;
  else
    return {};
}

class Config {
 public:
  static constexpr std::string_view kAbout = "Any class.";

  virtual ~Config() = default;
  virtual std::string_view class_name() const = 0;
  // The class that this one may stand in for: selecting nodes of that class selects nodes of this class too. "" = none.
  virtual std::string_view form_of() const { return {}; }
  virtual std::unique_ptr<Config> clone() const = 0;
  // Calls v(name, field, about) for each field, base class first, always in the same order.
  virtual void fields(FieldVisitor& v) = 0;
};

// Gives Derived its class name and clone(). Derived has `static constexpr std::string_view kName`, and kAbout, a
// sentence about the class.
template <typename Derived, typename Base = Config>
class ConfigOf : public Base {
 public:
  std::string_view class_name() const override { return Derived::kName; }
  std::unique_ptr<Config> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// A field without a default value. Reading it before it is set throws Error.
template <typename T>
class Required {
 public:
  Required() = default;
  Required(T value) : value_(std::move(value)) {}
  bool has_value() const { return value_.has_value(); }
  const T& get() const {
    if (!value_) throw hal::Error("config", "a required field was read before it was set");
    return *value_;
  }
  operator const T&() const { return get(); }
  std::optional<T>& optional() { return value_; }

 private:
  std::optional<T> value_;
};

// Owns a child config of type Base or of a class derived from it. Copies are deep. It may be empty.
template <typename Base>
class Child {
 public:
  Child() = default;
  template <typename T>
  requires std::is_base_of_v<Base, T> Child(const T& config) : config_(std::make_unique<T>(config)) {}
  Child(const Child& other) : config_(copy(other.config_.get())) {}
  Child(Child&&) noexcept = default;
  Child& operator=(Child other) noexcept {
    config_ = std::move(other.config_);
    return *this;
  }

  explicit operator bool() const { return config_ != nullptr; }
  Base* operator->() { return &get(); }
  const Base* operator->() const { return &get(); }
  Base& operator*() { return get(); }
  const Base& operator*() const { return get(); }
  Base& get() const {
    if (!config_) throw hal::Error("config", "a child config was used but is absent");
    return *config_;
  }
  // The child as a T, or nullptr if it is of another class.
  template <typename T>
  T* as() const {
    return dynamic_cast<T*>(config_.get());
  }

  Config* raw() const { return config_.get(); }
  // Takes ownership of the config. Returns false, and changes nothing, if it is not a Base.
  bool reset(std::unique_ptr<Config> config) {
    if (!config) {
      config_.reset();
      return true;
    }
    Base* base = dynamic_cast<Base*>(config.get());
    if (!base) return false;
    config.release();
    config_.reset(base);
    return true;
  }

 private:
  static std::unique_ptr<Base> copy(const Base* from) {
    if (!from) return nullptr;
    std::unique_ptr<Config> config = from->clone();
    return std::unique_ptr<Base>(static_cast<Base*>(config.release()));
  }
  std::unique_ptr<Base> config_;
};

// A Child<Base> whose Base is not known at compile time.
class ChildSlot {
 public:
  virtual ~ChildSlot() = default;
  virtual Config* get() const = 0;                         // nullptr if it is empty
  virtual bool reset(std::unique_ptr<Config> config) = 0;  // false if the config is not a Base
  virtual std::string_view base_name() const = 0;          // the name of Base, for selections and messages
  virtual std::string_view base_about() const = 0;         // a sentence about Base
};

template <typename T>
struct OptionalField {
  std::optional<T>* value;
  bool required;
};

struct ChildList {
  const std::vector<std::unique_ptr<ChildSlot>>* slots;
  const std::function<ChildSlot&()>* append;
  const std::function<void()>* clear;
};

using FieldValue = std::variant<std::int64_t*, double*, bool*, std::string*, std::vector<std::int64_t>*,
                                std::vector<std::string>*, OptionalField<std::int64_t>, OptionalField<double>,
                                OptionalField<std::string>, ChildSlot*, ChildList>;

// Pointers into a config; valid only during the call that receives it.
struct Field {
  std::string_view name;
  FieldValue value;
  About about = {};
};

// Receives every field of a config.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void field(const Field& field) = 0;

  template <typename T>
  void operator()(std::string_view name, T& value, const About& about = {}) {
    field({name, &value, about});
  }
  template <typename T>
  void operator()(std::string_view name, Required<T>& value, const About& about = {}) {
    field({name, OptionalField<T>{&value.optional(), true}, about});
  }
  template <typename T>
  void operator()(std::string_view name, std::optional<T>& value, const About& about = {}) {
    field({name, OptionalField<T>{&value, false}, about});
  }
  template <typename Base>
  void operator()(std::string_view name, Child<Base>& value, const About& about = {}) {
    Slot<Base> slot(value);
    field({name, &slot, about});
  }
  template <typename Base>
  void operator()(std::string_view name, std::vector<Child<Base>>& value, const About& about = {});

 private:
  template <typename Base>
  class Slot : public ChildSlot {
   public:
    explicit Slot(Child<Base>& child) : child_(child) {}
    Config* get() const override { return child_.raw(); }
    bool reset(std::unique_ptr<Config> config) override { return child_.reset(std::move(config)); }
    std::string_view base_name() const override {
      if constexpr (requires { Base::kName; })
        return Base::kName;
      else
        return type_name<Base>();
    }
    std::string_view base_about() const override { return about_of<Base>(); }

   private:
    Child<Base>& child_;
  };
};

template <typename Base>
void FieldVisitor::operator()(std::string_view name, std::vector<Child<Base>>& value, const About& about) {
  std::vector<std::unique_ptr<ChildSlot>> slots;
  for (Child<Base>& child : value) slots.push_back(std::make_unique<Slot<Base>>(child));
  std::unique_ptr<ChildSlot> last;
  const std::function<ChildSlot&()> append = [&]() -> ChildSlot& {
    value.emplace_back();
    last = std::make_unique<Slot<Base>>(value.back());
    return *last;
  };
  const std::function<void()> clear = [&] { value.clear(); };
  field({name, ChildList{&slots, &append, &clear}, about});
}

// The classes that text may name, each with its default config. Classes are added explicitly.
class ClassTable {
 public:
  // Throws Error if the name is taken.
  template <typename T>
  void add() {
    if (has(T::kName))
      throw hal::Error("config", "a class is added once", "'" + std::string(T::kName) + "' again");
    entries_[std::string(T::kName)] = {[] { return std::unique_ptr<Config>(std::make_unique<T>()); },
                                       about_of<T>()};
  }
  // Lets text name the class `current` by the name that it had before. A former name is never printed, listed or
  // suggested. Throws Error if there is no class `current`, or if `old` is a current or former name of a class.
  void add_former_name(std::string_view old, std::string_view current);

  // These accept former names too.
  bool has(std::string_view name) const { return entries_.find(current_name(name)) != entries_.end(); }
  std::unique_ptr<Config> make(
      std::string_view name) const;  // throws Error, with a suggestion, if there is no such class
  std::string_view about(std::string_view name) const;  // a sentence about the class; throws as make() does
  // The current name of a class: `name` itself unless it is a former name.
  std::string_view current_name(std::string_view name) const;

  std::vector<std::string> names() const;  // current names, sorted

 private:
  struct Entry {
    std::function<std::unique_ptr<Config>()> make;
    std::string_view about;
  };
  const Entry& entry(std::string_view name) const;

  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> current_names_;  // by former name
};

}  // namespace meshloom::layers
