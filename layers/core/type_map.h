// A map from types to values, with lookup in an outer map: a piece of information reaches the innermost module without
// passing through every signature on the way.
#pragma once

#include <map>
#include <memory>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace meshloom::layers {

class TypeMap {
 public:
  // `outer`, if any, must outlive this map.
  explicit TypeMap(const TypeMap* outer = nullptr) : outer_(outer) {}

  // Replaces this map's value of the same type, and hides an outer one.
  template <typename T>
  void put(T value) {
    values_[typeid(T)] = std::make_shared<const T>(std::move(value));
  }
  // The value of this map or else of the nearest outer one; nullptr if none has it.
  template <typename T>
  const T* find() const {
    if (const auto found = values_.find(typeid(T)); found != values_.end())
      return static_cast<const T*>(found->second.get());
    return outer_ ? outer_->find<T>() : nullptr;
  }

 private:
  const TypeMap* outer_;
  std::map<std::type_index, std::shared_ptr<const void>> values_;
};

}  // namespace meshloom::layers
