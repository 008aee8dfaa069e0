// What contracts share: checks of a call's types and attributes, partition letters, tolerances.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/contract.h"

namespace meshloom::kernels {

struct Expression;

// The checks of one `infer`. Every failure is an Error whose place is the op.
class Rules {
 public:
  // Every dimension of every input must be positive.
  Rules(std::string_view op, const std::vector<TensorType>& inputs, const Attrs& attrs);

  [[noreturn]] void fail(const std::string& rule, const std::string& found = {}) const;
  void require(bool holds, const std::string& rule, const std::string& found = {}) const {
    if (!holds) fail(rule, found);
  }
  // The names of the inputs, in order: fixes their number and is used in later messages.
  void inputs(std::vector<std::string> names);
  // Every attribute there is must be one of these, and every required one must be there.
  void attributes(std::initializer_list<std::string_view> required,
                  std::initializer_list<std::string_view> optional = {}) const;
  void dtype(int input, DType wanted) const;
  void floating(int input) const;                        // f32, f16 or bf16
  void floats(std::initializer_list<int> inputs) const;  // all of one float dtype
  // What the attribute "dtype" names, a float dtype.
  DType result_dtype(DType otherwise = DType::f32) const;
  void rank(int input, int low, int high) const;
  void shape(int input, const Shape& wanted) const;

  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // finite
  std::string text(std::string_view name) const;
  std::vector<std::int64_t> list(std::string_view name) const;
  // One over so many inputs, with as many as that or fewer used.
  std::shared_ptr<const Expression> expression(std::string_view name, std::size_t inputs) const;

  const TensorType& operator[](int input) const { return types_.at(static_cast<std::size_t>(input)); }

 private:
  std::string name(int input) const;

  std::string op_;
  const std::vector<TensorType>& types_;
  const Attrs& attrs_;
  std::vector<std::string> names_;
};

// Sets the attribute "dtype" of a call where it is not what the call would have without: equal calls have equal attributes.
void set_result_dtype(Attrs& attrs, std::optional<DType> dtype, DType otherwise);

// Without the last dimension.
Shape leading(const Shape& shape);

// One letter per dimension, from 'a'.
std::string letters(int rank);

// An f32 sum of `terms` numbers of size 1 in any order: the rounding errors of partial sums add up like a
// random walk, about sqrt(terms) ulps; twice that, and `ulps` for what is done to the sum.
Tolerance sum_tolerance(double terms, double ulps = 4);
// The same of products with weights that a variant may have rounded to the dtype of x: errors of half a step each, which add up like a
// random walk too.
Tolerance quantized_weights_tolerance(double terms, DType x);

}  // namespace meshloom::kernels
