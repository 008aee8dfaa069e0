// Which rank computes the update of a parameter that needs the whole of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Assigns parameters to the ranks of a mesh, each to the one with the least work so far, of equals to the first. Work counts less
// where a rank is faster (Topology::shares). All ranks of a mesh get the same answers to the same questions.
class Owners {
 public:
  Owners(AxisSet axes, const Topology& mesh);

  // Whether a rank may have values of this type whole, and the others ranges of them: of f32, with ranges that are not empty, and that
  // can be gathered (convert_spec.h) from not more ranks than should send to one.
  bool can_hold(const kernels::TensorType& type) const;
  // The place, over the axes, of the owner of what the calls with this path compute from a value of this type.
  int of(const std::string& path, const kernels::TensorType& type);

 private:
  AxisSet axes_;
  const Topology& mesh_;
  std::vector<double> speeds_, work_;  // by place
  std::map<std::string, int> places_;
};

}  // namespace meshloom::trainer
