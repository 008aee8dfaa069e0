#include "backends/cpu/kernel_table.h"

#include <utility>

#include "backends/cpu/backend.h"
#include "backends/cpu/kernels/ops.h"

namespace meshloom::backends::cpu {

KernelTable::KernelTable() {
  for (const Ops& ops : all_ops())
    for (const Kernel& kernel : ops.kernels)
      if (!kernels_.emplace(kernel.name, kernel).second)
        throw Error("cpu, kernel table", "kernel names must be unique", "'" + kernel.name + "' twice");
}

const Kernel& KernelTable::find(std::string_view name) const {
  const auto found = kernels_.find(name);
  if (found == kernels_.end())
    throw Error("cpu, loading kernel '" + std::string(name) + "'", "must be one of the backend's kernels");
  return found->second;
}

void add_cpu_variants(kernels::Catalog& catalog) {
  for (Ops& ops : all_ops()) catalog.add("cpu", std::move(ops.variants));
}

}  // namespace meshloom::backends::cpu
