#include "kernels/program/program.h"

namespace meshloom::kernels {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::input:
      return "input";
    case Role::parameter:
      return "parameter";
    case Role::optimizer:
      return "optimizer";
    case Role::state:
      return "state";
    case Role::gradient:
      return "gradient";
    case Role::cache:
      return "cache";
    case Role::parameter_copy:
      return "parameter_copy";
    case Role::activation:
      return "activation";
  }
  return "?";
}

std::string_view to_string(TimeBasis basis) {
  switch (basis) {
    case TimeBasis::measured:
      return "measured";
    case TimeBasis::similar:
      return "similar";
    case TimeBasis::fitted:
      break;
  }
  return "fitted";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::recompute:
      return "recompute";
    case Phase::update:
      return "update";
  }
  return "?";
}

std::vector<TensorType> Program::types(const std::vector<ValueId>& ids) const {
  std::vector<TensorType> result;
  result.reserve(ids.size());
  for (ValueId id : ids) result.push_back(value(id).type);
  return result;
}

}  // namespace meshloom::kernels
