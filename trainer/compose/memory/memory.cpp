#include "trainer/compose/memory/memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "hal/error.h"
#include "hal/math.h"
#include "kernels/program/sizes.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/memory/arena.h"
#include "trainer/compose/memory/storage.h"

namespace meshloom::trainer {
namespace {

using hal::MemoryKind;
using kernels::Program;
using kernels::Role;

constexpr std::array kClassOrder = {Role::parameter, Role::gradient,       Role::optimizer, Role::state,
                                    Role::cache,     Role::parameter_copy, Role::input,     Role::activation};
constexpr std::size_t kMaxShown = 12;

// What helps where one tensor is larger than the device's largest allocation.
constexpr const char* kHelpForKept =
    "a tensor that is kept from step to step is not cut: a smaller vocabulary or width, fewer bits (the "
    "modifier Quantize), or another driver, of which `meshloom devices` shows the largest allocation";
constexpr const char* kHelpForCaches =
    "it keeps the keys or values of all texts together: fewer tokens of a text (serve --max-length), fewer "
    "texts (--max-sequences) or fewer pages for all (--pages), or another driver, of which `meshloom "
    "devices` shows the largest "
    "allocation";
constexpr const char* kHelpForOthers =
    "for the scores of a loss ChunkedLoss (--replace 'CrossEntropy=ChunkedLoss{chunk_size=512}'), for others "
    "more accumulation, a smaller batch, sequence or vocabulary";

// Where dispatches share launches or run side by side, which they only can while their workspaces lie apart, a workspace of up to so
// many bytes is kept from so many calls behind it.
constexpr std::int64_t kMaxKeptBytes = 16 << 20;
constexpr std::size_t kKeptCalls = 16;

// The last call near call `index` that has a workspace too, and runs by the same variant; else `index`.
std::size_t last_neighbour(const Program& program, std::size_t index) {
  std::size_t last = index;
  for (std::size_t i = index + 1; i < program.calls.size() && i <= index + kKeptCalls; ++i)
    if (const auto& choice = program.calls[i].choice;
        choice && choice->workspace_bytes > 0 && choice->variant == program.calls[index].choice->variant)
      last = i;
  return last;
}

// One program with its transient lifetimes, first of its storage units, then of its workspaces.
struct Piece {
  ProgramKey step;
  Program program;
  Storage storage;
  std::vector<Lifetime> lifetimes;
  std::vector<int> lifetime_of_unit, lifetime_of_workspace;  // -1 = none
  std::vector<std::string> names, kinds;                     // by lifetime
  std::vector<MemoryKind> memories;                          // by lifetime

  Piece(const ProgramKey& s, Program p, const kernels::Catalog& catalog, bool keeps_workspaces)
      : step(s), program(std::move(p)), storage(program, catalog) {
    for (const StorageUnit& unit : storage.units)
      lifetime_of_unit.push_back(unit.persistent.empty()
                                     ? add({unit.first, unit.last, unit.type.bytes()}, unit.name,
                                           memory_class(unit.role), unit.memory)
                                     : -1);
    for (std::size_t i = 0; i < program.calls.size(); ++i) {
      const kernels::Call& call = program.calls[i];
      const std::int64_t bytes = call.choice ? call.choice->workspace_bytes : 0;
      if (bytes == 0) {
        lifetime_of_workspace.push_back(-1);
        continue;
      }
      const bool kept = keeps_workspaces && bytes <= kMaxKeptBytes;
      const std::size_t last = kept ? last_neighbour(program, i) : i;
      lifetime_of_workspace.push_back(add({static_cast<int>(i), static_cast<int>(last), bytes},
                                          "workspace of " + call.path + " " + call.op, "workspace"));
    }
  }

  int add(const Lifetime& life, const std::string& name, const std::string& kind,
          MemoryKind memory = MemoryKind::device) {
    lifetimes.push_back(life);
    memories.push_back(memory);
    names.push_back(name);
    kinds.push_back(kind);
    return static_cast<int>(lifetimes.size()) - 1;
  }
};

class Planner {
 public:
  Planner(Plan& plan, const hal::DeviceInfo& device)
      : plan_(plan), alignment_(std::max(kPlacementAlignment, device.limits.offset_alignment)) {
    const std::int64_t limit = device.limits.max_allocation_bytes;
    max_block_bytes_ = limit > 0 ? limit / alignment_ * alignment_ : std::int64_t{1} << 62;
    device_ = device.id;
  }

  void run(std::vector<Piece>& pieces, const std::vector<CopiedValue>& copied) {
    require_countable(pieces, copied);
    for (Role role : kClassOrder)
      if (role != Role::cache && role != Role::parameter_copy) plan_.memory[memory_class(role)] = 0;
    plan_.memory["workspace"] = 0;
    for (Role role : kClassOrder)
      for (const Piece& piece : pieces)
        for (const StorageUnit& unit : piece.storage.units)
          if (!unit.persistent.empty()) place_persistent(unit, role, piece.program.name);
    for (const CopiedValue& value : copied)
      plan_.host.copies[value.name] = place(value.name, value.type, value.role, MemoryKind::host);
    transients(pieces);
    for (const Block& block : plan_.blocks)
      if (block.shared < 0)
        (block.memory == MemoryKind::device ? plan_.peak_bytes : plan_.host.peak_bytes) += block.bytes;
  }

 private:
  // Checks that no sum of bytes in this pass can overflow.
  void require_countable(const std::vector<Piece>& pieces, const std::vector<CopiedValue>& copied) const {
    std::int64_t total = 0;
    const auto count = [&](const std::string& name, std::int64_t bytes) {
      const std::string where = "memory plan, all tensors up to '" + name + "'";
      if (bytes < 0) throw hal::Error(where, "bytes must not be negative", std::to_string(bytes));
      total = kernels::sum(where, total, kernels::sum(where, bytes, alignment_));
    };
    for (const CopiedValue& value : copied) count(value.name, value.type.bytes());
    for (const Piece& piece : pieces) {
      for (const StorageUnit& unit : piece.storage.units)
        if (!unit.persistent.empty()) count(unit.persistent, unit.type.bytes());
      for (std::size_t i = 0; i < piece.lifetimes.size(); ++i)
        count(piece.names[i], piece.lifetimes[i].bytes);
    }
  }

  // Every kernel takes a tensor as one range of one buffer.
  void require_fits(const std::string& name, std::int64_t bytes, const char* help) const {
    if (bytes <= max_block_bytes_) return;  // which is a multiple of the alignment
    throw hal::OutOfMemory("memory plan, '" + name + "'",
                           "one tensor takes at most " + std::to_string(max_block_bytes_) +
                               " bytes, the largest allocation of device " + device_ +
                               "; what would help: " + help,
                           std::to_string(bytes) + " bytes");
  }

  void place_persistent(const StorageUnit& unit, Role role, const std::string& program) {
    const auto known = plan_.persistent_types.find(unit.persistent);
    if (known != plan_.persistent_types.end()) {
      if (known->second != unit.type)
        throw hal::Error("memory plan of program '" + program + "'",
                         "'" + unit.persistent + "' must have one type in all programs",
                         to_string(known->second) + " and " + to_string(unit.type));
      return;
    }
    if (unit.role != role) return;
    plan_.persistent[unit.persistent] = place(unit.persistent, unit.type, role, unit.memory);
    plan_.persistent_types[unit.persistent] = unit.type;
  }

  // A place in the last block of the kind, or in a new one.
  Placement place(const std::string& name, const kernels::TensorType& type, Role role, MemoryKind memory) {
    require_fits(name, type.bytes(), role == Role::cache ? kHelpForCaches : kHelpForKept);
    const std::int64_t bytes = hal::round_up(type.bytes(), alignment_);
    int& last = last_block_[static_cast<std::size_t>(memory)];
    if (last < 0 || plan_.blocks[at(last)].bytes + bytes > max_block_bytes_) {
      last = static_cast<int>(plan_.blocks.size());
      plan_.blocks.push_back({label(memory, "persistent ", last), true, 0, memory});
    }
    Block& block = plan_.blocks[at(last)];
    const Placement placed{last, block.bytes, type.bytes()};
    block.bytes += bytes;
    if (memory == MemoryKind::device) {
      plan_.memory[memory_class(role)] += bytes;
      large_.push_back({name, memory_class(role), bytes});
    } else {
      plan_.host.memory[memory_class(role)] += bytes;
    }
    return placed;
  }

  static std::string label(MemoryKind memory, const char* what, int number) {
    return (memory == MemoryKind::host ? "host " : "") + std::string(what) + std::to_string(number);
  }

  void transients(std::vector<Piece>& pieces) {
    std::vector<std::vector<Placement>> places;  // by piece and lifetime
    for (const Piece& piece : pieces) {
      places.emplace_back(piece.lifetimes.size());
      for (std::size_t i = 0; i < piece.lifetimes.size(); ++i)
        require_fits(piece.names[i], piece.lifetimes[i].bytes, kHelpForOthers);
    }
    attribute(pieces, arenas(pieces, MemoryKind::device, places));
    const std::int64_t on_host = arenas(pieces, MemoryKind::host, places);
    if (on_host > 0) plan_.host.memory[memory_class(Role::activation)] += on_host;
    for (std::size_t p = 0; p < pieces.size(); ++p) finish(pieces[p], places[p]);
  }

  // Places the lifetimes of one kind of memory in blocks that the programs share, and returns the bytes of these.
  std::int64_t arenas(const std::vector<Piece>& pieces, MemoryKind memory,
                      std::vector<std::vector<Placement>>& places) {
    const int first_block = static_cast<int>(plan_.blocks.size());
    std::vector<std::int64_t> block_bytes;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      std::vector<Lifetime> lifetimes;
      std::vector<std::size_t> indices;
      for (std::size_t i = 0; i < pieces[p].lifetimes.size(); ++i)
        if (pieces[p].memories[i] == memory) {
          lifetimes.push_back(pieces[p].lifetimes[i]);
          indices.push_back(i);
        }
      const ArenaLayout layout = plan_arena(lifetimes, alignment_, max_block_bytes_);
      for (std::size_t i = 0; i < indices.size(); ++i) {
        places[p][indices[i]] = layout.places[i];
        places[p][indices[i]].block += first_block;
      }
      const std::vector<std::int64_t>& sizes = layout.block_bytes;
      if (sizes.size() > block_bytes.size()) block_bytes.resize(sizes.size(), 0);
      for (std::size_t b = 0; b < sizes.size(); ++b) block_bytes[b] = std::max(block_bytes[b], sizes[b]);
    }
    std::int64_t total = 0;
    for (std::size_t b = 0; b < block_bytes.size(); ++b) {
      plan_.blocks.push_back(
          {label(memory, "transient ", static_cast<int>(b)), false, block_bytes[b], memory});
      total += block_bytes[b];
    }
    return total;
  }

  // The transient bytes by class at the moment when most of them are in use. Gaps count as activations.
  void attribute(const std::vector<Piece>& pieces, std::int64_t total) {
    const Piece* top = nullptr;
    int moment = 0;
    std::int64_t peak = -1;
    std::map<std::string, std::int64_t> high;  // by class of the transient bytes
    for (const Piece& piece : pieces) {
      const std::size_t moments = piece.program.calls.size() + 2;
      std::map<std::string, std::vector<std::int64_t>> change;  // by class and call
      for (std::size_t i = 0; i < piece.lifetimes.size(); ++i) {
        if (piece.memories[i] != MemoryKind::device) continue;
        const Lifetime& life = piece.lifetimes[i];
        std::vector<std::int64_t>& of_class = change.try_emplace(piece.kinds[i], moments, 0).first->second;
        of_class[at(life.first)] += hal::round_up(life.bytes, alignment_);
        of_class[at(life.last) + 1] -= hal::round_up(life.bytes, alignment_);
      }
      std::vector<std::int64_t> live(moments, 0);
      for (const auto& [kind, of_class] : change) {
        std::int64_t now = 0;
        for (std::size_t t = 0; t < moments; ++t) {
          live[t] += now += of_class[t];
          high[kind] = std::max(high[kind], now);
        }
      }
      for (std::size_t t = 0; t < moments; ++t)
        if (live[t] > peak) {
          peak = live[t];
          top = &piece;
          moment = static_cast<int>(t);
        }
    }
    plan_.memory_max = plan_.memory;  // the persistent bytes
    for (const auto& [kind, bytes] : high) plan_.memory_max[kind] += bytes;
    std::int64_t others = 0;
    if (top)
      for (std::size_t i = 0; i < top->lifetimes.size(); ++i) {
        const Lifetime& life = top->lifetimes[i];
        if (life.first > moment || life.last < moment || top->memories[i] != MemoryKind::device) continue;
        const std::int64_t bytes = hal::round_up(life.bytes, alignment_);
        large_.push_back({top->names[i], top->kinds[i], bytes});
        if (top->kinds[i] == "activations") continue;
        plan_.memory[top->kinds[i]] += bytes;
        others += bytes;
      }
    plan_.memory["activations"] += total - others;
    plan_.memory_max["activations"] = std::max(plan_.memory_max["activations"], plan_.memory["activations"]);
    std::stable_sort(large_.begin(), large_.end(),
                     [](const LargeTensor& a, const LargeTensor& b) { return a.bytes > b.bytes; });
    if (large_.size() > kMaxShown) large_.resize(kMaxShown);
    plan_.largest = std::move(large_);
  }

  void finish(Piece& piece, const std::vector<Placement>& places) {
    PlannedProgram planned;
    const auto transient = [&](int lifetime) { return places[at(lifetime)]; };
    for (std::size_t v = 0; v < piece.program.values.size(); ++v) {
      const int unit = piece.storage.unit_of[v];
      Placement place;
      if (unit >= 0) {
        const std::string& name = piece.storage.units[at(unit)].persistent;
        place = name.empty() ? transient(piece.lifetime_of_unit[at(unit)]) : plan_.persistent.at(name);
        place.bytes = piece.program.values[v].type.bytes();
      }
      planned.placements.push_back(place);
    }
    for (int lifetime : piece.lifetime_of_workspace)
      planned.workspaces.push_back(lifetime < 0 ? Placement{} : transient(lifetime));
    planned.program = std::move(piece.program);
    plan_.steps.programs.emplace(piece.step, std::move(planned));
  }

  Plan& plan_;
  std::int64_t alignment_, max_block_bytes_;
  std::string device_;
  std::array<int, 2> last_block_{-1, -1};  // of persistent values, by kind of memory
  std::vector<LargeTensor> large_;
};

}  // namespace

void plan_memory(Plan& plan, std::vector<std::pair<ProgramKey, Program>> programs,
                 const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                 const std::vector<CopiedValue>& copied) {
  std::vector<Piece> pieces;
  const bool keeps_workspaces =
      (device.limits.max_parameter_bytes > 0 && !device.is_cpu) || device.has("overlapping-dispatches");
  for (auto& [step, program] : programs)
    pieces.emplace_back(step, std::move(program), catalog, keeps_workspaces);
  Planner(plan, device).run(pieces, copied);
  for (auto& [step, planned] : plan.steps.programs) {
    planned.exchanges = exchanges_of(planned.program, catalog, plan.mesh);
    plan.staging_bytes = std::max(plan.staging_bytes, staging_bytes(planned.exchanges));
  }
}

}  // namespace meshloom::trainer
