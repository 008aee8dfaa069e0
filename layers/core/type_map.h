// Values by type, inherited from an outer bag: how a piece of information reaches the innermost module
// without passing through every signature in between.
#pragma once

#include <map>
#include <memory>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace meshloom::layers {

class Bag {
 public:
  // `outer`, if any, must outlive the bag.
  explicit Bag(const Bag* outer = nullptr) : outer_(outer) {}

  // Hides an outer value of the same type; replaces one of this bag.
  template <typename T>
  void put(T value) {
    values_[typeid(T)] = std::make_shared<const T>(std::move(value));
  }
  // The nearest value, or nullptr.
  template <typename T>
  const T* find() const {
    if (const auto found = values_.find(typeid(T)); found != values_.end())
      return static_cast<const T*>(found->second.get());
    return outer_ ? outer_->find<T>() : nullptr;
  }

 private:
  const Bag* outer_;
  std::map<std::type_index, std::shared_ptr<const void>> values_;
};

}  // namespace meshloom::layers
