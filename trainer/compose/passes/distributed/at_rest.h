// How the values that outlive a program are divided over the ranks of a mesh: see partition.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"
#include "trainer/mesh/spec.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

class AtRest {
 public:
  // Throws Error for numbers of heads and of experts that the mesh does not divide. What it is given must outlive it.
  AtRest(const kernels::Program& program, const kernels::Catalog& catalog, const Topology& mesh);

  // The division of an input of the program; of other values, that of an input of their role. Throws Error for rows and tokens that
  // the mesh does not divide.
  Spec of(const kernels::Value& value) const;
  // How a parameter with these axes, its gradient and its optimizer states are cut along dimensions.
  Spec cut(const kernels::TensorType& type, const std::vector<std::string>& axes) const;

  // The axes over which a value that is cut like this has copies, or ranges.
  AxisSet copies(const Spec& spec) const { return axes_ - spec.cuts(); }
  // Whether all ranks get some of its elements where such a value is divided into ranges over these.
  bool divisible_into_ranges(const kernels::TensorType& type, const Spec& spec) const;
  // Sums of gradients over micro-batches are kept whole, and added up between ranks once, unless parameters are divided.
  bool keeps_partial_sums() const { return !rows().has(AxisName::fsdp); }

 private:
  AxisSet rows() const { return axes_ & kRowAxes; }
  void check_heads() const;
  void check_experts() const;
  void check_rows(std::int64_t n) const;
  void cut_sequence(const kernels::Value& value, Spec& spec) const;
  Spec cut_where(const std::vector<std::string>& axes, int rank,
                 const std::function<bool(std::size_t, AxisSet)>& may_cut) const;
  Spec cut_bytes(const kernels::Value& value) const;
  bool read_in_parts(const kernels::Value& value, std::size_t d, AxisSet cut) const;

  const kernels::Program& program_;
  const kernels::Catalog& catalog_;
  const Topology& mesh_;
  AxisSet axes_;
};

}  // namespace meshloom::trainer
