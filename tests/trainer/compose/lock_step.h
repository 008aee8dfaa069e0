// The programs of all ranks of a mesh, interpreted by the references in lock step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/collective/moves.h"
#include "tests/kernels/interpret.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/mesh/layout.h"

namespace meshloom::tests {

using Mesh = std::vector<trainer::MeshAxis>;

// The part of a whole value that a rank holds.
inline kernels::HostTensor part_of(const kernels::HostTensor& whole, const trainer::Layout& layout,
                                   const kernels::TensorType& type) {
  kernels::HostTensor part(type);
  const auto size = static_cast<std::int64_t>(hal::size_of(type.dtype));
  trainer::for_runs(layout, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    std::memcpy(part.data.data() + to * size, whole.data.data() + from * size,
                static_cast<std::size_t>(count * size));
  });
  return part;
}

// A rank that is interpreted up to its next collective.
class Rank {
 public:
  Rank(const kernels::Catalog& catalog, trainer::Partitioned partitioned, Values values)
      : catalog_(catalog), program_(std::move(partitioned.program)), values_(std::move(values)) {}

  // The next collective; nullptr at the end.
  const kernels::Call* advance() {
    for (; next_ < program_.calls.size(); ++next_) {
      const kernels::Call& call = program_.calls[next_];
      if (catalog_.contract(call.op).moves) return &call;
      kernels::Program one;
      one.values = program_.values;
      one.calls = {call};
      values_ = interpret(one, catalog_, std::move(values_));
    }
    return nullptr;
  }
  std::vector<kernels::collective::Move> moves(int places, int place) const {
    const kernels::Call& call = program_.calls[next_];
    const kernels::CallTypes types(program_, call);
    return kernels::collective::expanded(catalog_.contract(call.op).moves(types.view(call)), places, place);
  }
  const kernels::HostTensor& sent() const { return values_.at(program_.calls[next_].inputs[0]); }
  kernels::TensorType received() const { return program_.value(program_.calls[next_].outputs[0]).type; }
  void receive(kernels::HostTensor value) {
    values_.insert_or_assign(program_.calls[next_++].outputs[0], std::move(value));
  }
  const kernels::Program& program() const { return program_; }
  const kernels::HostTensor& value(kernels::ValueId id) const { return values_.at(id); }

 private:
  const kernels::Catalog& catalog_;
  kernels::Program program_;
  Values values_;
  std::size_t next_ = 0;
};

// Carries out one collective of all ranks. Throws Error where their lists do not fit together.
inline void exchange(std::vector<Rank>& ranks, const Mesh& mesh,
                     const std::vector<const kernels::Call*>& calls) {
  std::vector<kernels::HostTensor> outputs;
  for (const Rank& rank : ranks) outputs.emplace_back(rank.received());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<int> group = trainer::Topology(mesh, static_cast<int>(r))
                                       .group(trainer::axes_from_string(calls[r]->attrs.text("axes")));
    if (group.front() != static_cast<int>(r)) continue;
    std::vector<std::vector<kernels::collective::Move>> lists;
    std::vector<std::int64_t> bytes;
    for (const int member : group) {
      lists.push_back(ranks[static_cast<std::size_t>(member)].moves(static_cast<int>(group.size()),
                                                                    static_cast<int>(lists.size())));
      bytes.push_back(outputs[static_cast<std::size_t>(member)].type.bytes());
    }
    if (const std::string text = kernels::collective::mismatch(lists, bytes); !text.empty())
      throw hal::Error("lock step", "lists of moves must fit together", text);
    for (std::size_t from = 0; from < group.size(); ++from)
      for (std::size_t to = 0; to < group.size(); ++to) {
        std::vector<kernels::collective::Move> out, in;
        for (const auto& move : lists[from])
          if (move.out && move.peer == static_cast<int>(to)) out.push_back(move);
        for (const auto& move : lists[to])
          if (!move.out && move.peer == static_cast<int>(from)) in.push_back(move);
        for (std::size_t k = 0; k < out.size(); ++k)
          std::memcpy(outputs[static_cast<std::size_t>(group[to])].data.data() + in[k].offset,
                      ranks[static_cast<std::size_t>(group[from])].sent().data.data() + out[k].offset,
                      static_cast<std::size_t>(out[k].bytes));
      }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].receive(std::move(outputs[r]));
}

// Runs them to their ends. False where they have different numbers of collectives.
inline bool run_in_lock_step(std::vector<Rank>& ranks, const Mesh& mesh) {
  for (;;) {
    std::vector<const kernels::Call*> calls;
    for (Rank& rank : ranks) calls.push_back(rank.advance());
    const auto ended = std::count(calls.begin(), calls.end(), nullptr);
    if (ended == static_cast<std::ptrdiff_t>(calls.size())) return true;
    if (ended > 0) return false;
    exchange(ranks, mesh, calls);
  }
}

}  // namespace meshloom::tests
