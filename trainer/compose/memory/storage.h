// Which values of one program share storage, and the lifetime of each storage.
#pragma once

#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

// One piece of memory, which holds one or more values one after another.
struct StorageUnit {
  std::string persistent;    // name of the persistent value; "" = transient
  kernels::TensorType type;  // of its first value
  kernels::Role role = kernels::Role::activation;
  std::string name;         // of its value, or of the call that defines it
  int first = 0, last = 0;  // calls, both included
  hal::MemoryKind memory = hal::MemoryKind::device;
};

struct Storage {
  std::vector<StorageUnit> units;
  std::vector<int> unit_of;  // by value; -1 for values that nothing defines

  // Throws Error when an output has no name or shares its storage with another persistent value, or when a
  // donation is not possible (legalize_donations makes all of them possible).
  Storage(const kernels::Program& program, const kernels::Catalog& catalog);
};

// The memory class that a role is reported under: "parameters", "gradients", ...
std::string memory_class(kernels::Role role);

}  // namespace meshloom::trainer
