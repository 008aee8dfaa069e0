// The update of the parameters on the host: how gradients come there, and which part of the update can run when.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "trainer/compose/passes/update.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {

// As write_accumulation, with "grad/<path>" and "accumulate/<name>" in the host's memory, so that gradients take memory of
// the device only until they are copied. With a single micro-batch they are written there, else the sums are fetched, added
// to, and written back.
void write_host_accumulation(kernels::Builder& builder, const std::vector<layers::ParameterInfo>& infos,
                             const std::vector<kernels::Tensor>& gradients, const BatchSums& sums,
                             bool single);

// Places in the program of the device where the host can go on, after every so many bytes of values that came there.
struct Marks {
  std::vector<int> calls;         // the last call before each mark
  std::map<std::string, int> of;  // by name: the mark after which the host has it
};
// States of the model that the program changes in the device's memory are on the host one after the last mark.
Marks place_marks(const kernels::Program& program);

// By call: the mark that it waits for; -1 = none.
std::vector<int> waits(const kernels::Program& program, const Marks& marks);
// Orders the calls of the host's program by the marks that they wait for.
kernels::Program order_by_marks(kernels::Program program, const Marks& marks);
// Cuts the program at the marks, and its last part after every so many bytes that go to the device.
std::vector<HostPart> host_parts(const kernels::Program& program, const Marks& marks,
                                 const std::set<std::string>& to_device);

}  // namespace meshloom::trainer
