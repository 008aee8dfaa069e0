// Deals a program to the stages of a pipeline (Huang et al., GPipe, 2019).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/builder.h"
#include "kernels/program/program.h"
#include "layers/models/trace.h"
#include "trainer/compose/step.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {

// Which part of a pipeline has which layers; part p is chunk p / stages of stage p % stages (schedule.h). A layer is a region
// (remat.h) that has parameters, such as "decoder/stack/layer3".
struct Deal {
  int stages = 1, chunks = 1;
  std::vector<std::string> layers;  // in the order of the forward pass
  std::map<std::string, int> part;  // of each

  int parts() const { return stages * chunks; }
  int stage_of(int of_part) const { return of_part % stages; }
};

// Deals the layers of a program with its backward pass, in order, so that the part that computes longest computes as little as
// can be; of several such ways the one whose parameters are most even. What is outside of layers counts where it is computed.
// The time of a call is taken to follow from its FLOPs and bytes on every device alike, so that all ranks deal alike. Throws
// Error for more parts than layers, naming what would fit.
Deal deal_layers(const kernels::Program& program, const kernels::Catalog& catalog, int stages, int chunks);

// A part's gradient of a parameter that several parts use. The parameter lives in the first of them; another one adds its
// part of the gradient to a sum of its own, "grad/" + info.path, which goes to the first before the update.
struct GradientPart {
  std::string parameter;       // its path
  int part = 0;                // of the pipeline
  layers::ParameterInfo info;  // of the sum; its path is "part3/<parameter>"
  kernels::Tensor gradient;    // of one micro-batch
};
// Takes these parts out of the gradients of `infos`; what stays in each is of the first part that has any.
std::vector<GradientPart> split_gradients(kernels::Builder& builder, const Deal& deal,
                                          const std::vector<layers::ParameterInfo>& infos,
                                          std::vector<kernels::Tensor>& gradients);

// Which parts compute which calls of a program, and need its values.
//   calls of layers   the part of the layer; and others, the last part that they read a value of (of the backward pass: the
//                     first); what leads into a layer, such as an embedding, is where it is read first
//   calls of inputs or parameters alone, and views    made again in every part that reads them
class Parts {
 public:
  // Throws Error where a value would flow against the pipeline.
  Parts(const kernels::Program& program, const kernels::Catalog& catalog, const Deal& deal);

  // The program of one part. Its inputs and outputs "pipe/v12" are what arrives from and goes to other parts.
  kernels::Program program_of(int part) const;
  // The values that go from the part to the next one, or come from it in the backward pass, by name.
  std::vector<std::string> forward_across(int part) const { return names_across(part, false); }
  std::vector<std::string> backward_across(int part) const { return names_across(part, true); }
  // The parts that read or write each persistent value, in order. Values of Role::input are left out.
  std::map<std::string, std::vector<int>> holders() const;

 private:
  friend Deal deal_layers(const kernels::Program&, const kernels::Catalog&, int, int);
  friend std::vector<GradientPart> split_gradients(kernels::Builder&, const Deal&,
                                                   const std::vector<layers::ParameterInfo>&,
                                                   std::vector<kernels::Tensor>&);
  void find_kinds();
  void assign_forward();
  void assign_backward();
  void check_flow() const;
  void find_readers();
  int part_of(kernels::ValueId id) const { return part_of_value_[static_cast<std::size_t>(id)]; }
  void define(const kernels::Call& call, int part);
  std::vector<kernels::ValueId> across(int part, bool backward) const;
  std::vector<std::string> names_across(int part, bool backward) const;

  const kernels::Program& program_;
  const kernels::Catalog& catalog_;
  const Deal& deal_;
  std::vector<char> anywhere_;             // by call: it is made again where it is read
  std::vector<int> part_of_call_;          // -1 = anywhere
  std::vector<int> part_of_value_;         // where it is defined; of a view, where its root is; -1 = anywhere
  std::vector<std::vector<int>> readers_;  // by value: parts, in order
};

// The programs of a part of Step::accumulate after rematerialization, cut by phase. What one of them defines and a later one
// reads is kept between them: an output of the first and an input of the others.
struct PhasePrograms {
  std::vector<std::pair<Step, kernels::Program>> programs;  // forward, backward, and with `weights` weights
  // The persistent values, by name, that every slot has of its own.
  std::vector<std::string> slotted;
};
// `arriving` are the names of what comes from the part in front, before the forward pass.
PhasePrograms cut_by_phase(const kernels::Program& program, const kernels::Catalog& catalog, bool weights,
                           const std::vector<std::string>& arriving);
// The program on the values of one slot.
kernels::Program in_slot(kernels::Program program, const std::vector<std::string>& slotted, int chunk,
                         int slot);

// What a stage computes of Step::apply. `holders` are the stages of each value that lives on some stages only, the first of
// which updates it. What calls of several stages make, such as the gradient's norm, every stage makes from the same numbers:
// the others' come by an all_gather over the pipeline.
kernels::Program apply_of_stage(const kernels::Program& program, const kernels::Catalog& catalog,
                                const std::map<std::string, std::vector<int>>& holders, const Topology& mesh);

}  // namespace meshloom::trainer
