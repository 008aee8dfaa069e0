// Writes programs: a cursor over one Program with the current module path and phase.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/program/program.h"

namespace meshloom::kernels {

class Catalog;
class Builder;

// Handle of a value while its program is being written.
struct Tensor {
  Builder* builder = nullptr;
  ValueId id = kNoValue;

  explicit operator bool() const { return id != kNoValue; }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  std::int64_t dim(int axis) const { return type().dim(axis); }
  DType dtype() const { return type().dtype; }
};

class Builder {
 public:
  // Both must outlive the builder. Calls are appended at the end of program.calls.
  Builder(const Catalog& catalog, Program& program) : catalog_(catalog), program_(program) {}

  const Catalog& catalog() const { return catalog_; }
  Program& program() { return program_; }

  // A value without a defining call. `axes` is empty or one name per dimension.
  Tensor input(std::string name, TensorType type, Role role, std::vector<std::string> axes = {});
  // Appends a call; output types come from the op's contract. Throws Error naming path, op and rule.
  std::vector<Tensor> call(std::string_view op, const std::vector<Tensor>& inputs, Attrs attrs = {});
  // The same for an op with one output.
  Tensor call1(std::string_view op, const std::vector<Tensor>& inputs, Attrs attrs = {});
  void output(Tensor tensor) { program_.outputs.push_back(tensor.id); }
  void donate(Tensor input, Tensor output) { program_.donations.push_back({input.id, output.id}); }

  Tensor tensor(ValueId id) { return {this, id}; }
  void name(Tensor tensor, std::string name) { program_.value(tensor.id).name = std::move(name); }
  void axes(Tensor tensor, std::vector<std::string> axes);
  void tag(Tensor tensor, std::string tag) { program_.value(tensor.id).tag = std::move(tag); }
  void role(Tensor tensor, Role role) { program_.value(tensor.id).role = role; }

  std::string path;              // module path put on new calls
  Phase phase = Phase::forward;  // phase put on new calls

 private:
  const Catalog& catalog_;
  Program& program_;
};

}  // namespace meshloom::kernels
