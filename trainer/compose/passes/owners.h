// Which rank computes the update of a parameter that needs the whole of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/program/types.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Deals parameters to the ranks of a mesh, each to the one with the least to do so far, of equals to the first. What a rank has to do
// counts less where it is faster (Topology::shares). All ranks of a mesh get the same answers to the same questions.
class Owners {
 public:
  Owners(AxisSet axes, const Topology& mesh);

  // Whether values of this type can be collected and dealt out: f32, ranges over the axes that are not empty, and of one size where
  // these stand in another order than ranks; and not over more ranks than one should hear.
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
