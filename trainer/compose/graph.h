// The definition and the readers of each value of a program, and which values are views of one storage.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/program/program.h"

namespace meshloom::trainer {

constexpr int kInputDefinition = -1;  // a program input
constexpr int kNoDefinition = -2;

// A value's or a call's number as an index.
inline std::size_t at(std::int64_t id) { return static_cast<std::size_t>(id); }

struct Graph {
  std::vector<int> definition;            // by value: index of the call, or one of the constants above
  std::vector<std::vector<int>> readers;  // by value: indices of calls, in order, without duplicates
  std::vector<char> outlives;             // by value: whether it is a program output or receives a donation
  std::vector<int> overwritten;           // by value: the call that overwrites its donated storage, or -1

  explicit Graph(const kernels::Program& program);

  const std::vector<int>& readers_of(kernels::ValueId id) const {
    return readers[static_cast<std::size_t>(id)];
  }
  int definition_of(kernels::ValueId id) const { return definition[static_cast<std::size_t>(id)]; }
  bool outlives_program(kernels::ValueId id) const { return outlives[static_cast<std::size_t>(id)] != 0; }
};

// By value: the value whose storage it is a view of; itself if it is no view.
std::vector<kernels::ValueId> view_roots(const kernels::Program& program, const kernels::Catalog& catalog);

// Removes calls whose outputs are not read, do not outlive the program, and receive no donation.
void remove_dead_calls(kernels::Program& program);

// Replaces every use of value `id` by `to[id]`, in calls, outputs and the outputs of donations. Chains are
// followed.
void replace_uses(kernels::Program& program, std::vector<kernels::ValueId> to);

}  // namespace meshloom::trainer
