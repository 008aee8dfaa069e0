#include "backends/cpu/device/command_list.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "backends/cpu/device/memory.h"
#include "hal/math.h"

namespace meshloom::backends::cpu {
namespace {

constexpr std::int64_t kPieceBytes = 256 << 10;  // of copies and fills, per work item

std::uint32_t pieces(std::int64_t bytes) {
  return static_cast<std::uint32_t>(hal::ceil_div(bytes, kPieceBytes));
}

}  // namespace

void CpuCommandList::check_open(const std::string& label) const {
  if (finished_) throw Error(where(label), "nothing can be recorded after finish()");
}

void CpuCommandList::finish() {
  if (finished_) throw Error("cpu, list '" + name_ + "'", "finish() must be called once");
  finished_ = true;
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    const auto* dispatch = std::get_if<Dispatch>(&commands_[i].what);
    const bool joins = dispatch && i > 0 && !commands_[i].after_barrier &&
                       std::holds_alternative<Dispatch>(commands_[i - 1].what) &&
                       dispatch->items <= std::numeric_limits<std::uint32_t>::max() - steps_.back().items;
    if (!joins) steps_.push_back({.first = i});
    Step& step = steps_.back();
    step.last = i + 1;
    // Waking the others for a single item would take longer than most of these.
    if (!dispatch || dispatch->items < 2) continue;
    step.at_once.push_back(i);
    step.items += dispatch->items;
    if (dispatch->schedule == Schedule::guided) step.schedule = Schedule::guided;
  }
}

template <typename What>
void CpuCommandList::record(const std::string& label, What what) {
  commands_.push_back({label, std::move(what), std::exchange(after_barrier_, false)});
}

void CpuCommandList::barrier() {
  check_open("a barrier");
  after_barrier_ = true;
}

void CpuCommandList::dispatch(const std::shared_ptr<hal::Executable>& executable,
                              std::array<std::uint32_t, 3> groups, std::span<const hal::Binding> bindings,
                              std::span<const hal::Word> constants, const std::string& label) {
  check_open(label);
  const auto* own = dynamic_cast<const CpuExecutable*>(executable.get());
  if (own == nullptr) throw Error(where(label), "an executable must be loaded by the device it is used on");
  const hal::ExecutableSpec& spec = own->spec();
  if (bindings.size() != spec.bindings.size())
    throw Error(where(label),
                "kernel '" + spec.kernel + "' takes " + std::to_string(spec.bindings.size()) + " bindings",
                std::to_string(bindings.size()));
  if (constants.size() != spec.constant_words)
    throw Error(where(label),
                "kernel '" + spec.kernel + "' takes " + std::to_string(spec.constant_words) + " constants",
                std::to_string(constants.size()));
  const std::uint64_t plane = std::uint64_t{groups[0]} * groups[1];
  const std::uint64_t max_items = std::numeric_limits<std::uint32_t>::max();
  if (plane > max_items || plane * groups[2] > max_items)
    throw Error(
        where(label), "a dispatch must have less than 2^32 groups",
        std::to_string(groups[0]) + " x " + std::to_string(groups[1]) + " x " + std::to_string(groups[2]));
  Dispatch dispatch{executable,
                    own->function(),
                    own->schedule(),
                    {},
                    {},
                    {constants.begin(), constants.end()},
                    groups,
                    static_cast<std::uint32_t>(plane * groups[2])};
  for (const hal::Binding& binding : bindings) {
    dispatch.buffers.push_back(host_address(binding, limits_.offset_alignment, where(label)));
    dispatch.bytes.push_back(binding.bytes);
  }
  record(label, std::move(dispatch));
}

void CpuCommandList::copy(const hal::Binding& from, const hal::Binding& to, const std::string& label) {
  check_open(label);
  if (from.bytes != to.bytes || from.bytes % 4 != 0)
    throw Error(where(label), "a copy must have equal sizes, multiples of 4",
                std::to_string(from.bytes) + " to " + std::to_string(to.bytes) + " bytes");
  record(label, Copy{host_address(from, 4, where(label)), host_address(to, 4, where(label)), from.bytes});
}

void CpuCommandList::fill(const hal::Binding& to, hal::Word value, const std::string& label) {
  check_open(label);
  if (to.bytes % 4 != 0)
    throw Error(where(label), "a fill must be a multiple of 4 bytes", std::to_string(to.bytes));
  record(label, Fill{host_address(to, 4, where(label)), to.bytes / 4, value.u});
}

void CpuCommandList::host_call(hal::HostFunction function, std::span<const hal::Binding> bindings,
                               const std::string& label) {
  check_open(label);
  if (!function) throw Error(where(label), "a host call needs a function");
  HostCall call{std::move(function), {}};
  for (const hal::Binding& binding : bindings)
    call.ranges.push_back({host_address(binding, 4, where(label)), binding.bytes});
  record(label, std::move(call));
}

void CpuCommandList::run(const Dispatch& dispatch, ThreadPool& pool) {
  const KernelArgs args{dispatch.buffers, dispatch.bytes, dispatch.constants.data(), dispatch.groups};
  pool.run(
      dispatch.items,
      [&](std::uint32_t begin, std::uint32_t end, int worker) {
        dispatch.function(args, begin, end, worker);
      },
      dispatch.schedule);
}

void CpuCommandList::run(const Copy& copy, ThreadPool& pool) {
  // Overlapping ranges of one buffer are moved by one work item, others are copied in pieces.
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from),
             to = reinterpret_cast<std::uintptr_t>(copy.to);
  const auto bytes = static_cast<std::uintptr_t>(copy.bytes);
  if (from < to + bytes && to < from + bytes) {
    std::memmove(copy.to, copy.from, bytes);
    return;
  }
  pool.run(pieces(copy.bytes), [&](std::uint32_t begin, std::uint32_t end, int) {
    const std::int64_t first = begin * kPieceBytes, last = std::min(end * kPieceBytes, copy.bytes);
    std::memcpy(copy.to + first, copy.from + first, static_cast<std::size_t>(last - first));
  });
}

void CpuCommandList::run(const Fill& fill, ThreadPool& pool) {
  auto* words = reinterpret_cast<std::uint32_t*>(fill.to);
  pool.run(pieces(fill.words * 4), [&](std::uint32_t begin, std::uint32_t end, int) {
    const std::int64_t first = begin * (kPieceBytes / 4);
    std::fill(words + first, words + std::min(end * (kPieceBytes / 4), fill.words), fill.value);
  });
}

void CpuCommandList::run(const HostCall& call, ThreadPool&) { call.function(call.ranges); }

void CpuCommandList::timestamp() {
  check_open("a timestamp");
  record("timestamp", Timestamp{});
}

std::vector<double> CpuCommandList::intervals() {
  std::vector<double> seconds;
  for (std::size_t i = 1; i < times_.size(); ++i)
    seconds.push_back(std::chrono::duration<double>(times_[i] - times_[i - 1]).count());
  return seconds;
}

template <typename F>
void CpuCommandList::naming(const Command& command, F f) const {
  try {
    f();
  } catch (const Error& error) {
    throw Error(where(command.label) + ": " + error.where(), error.rule(), error.found());
  } catch (const std::exception& error) {
    throw Error(where(command.label), "the command failed", error.what());
  }
}

void CpuCommandList::run(const Step& step, ThreadPool& pool) {
  const bool together = step.at_once.size() > 1;
  for (std::size_t i = step.first; i < step.last; ++i) {
    const Command& command = commands_[i];
    const auto* dispatch = std::get_if<Dispatch>(&command.what);
    if (together && dispatch && dispatch->items > 1) continue;
    naming(command, [&] { std::visit([&](const auto& what) { run(what, pool); }, command.what); });
  }
  if (!together) return;
  pool.run(
      step.items,
      [&](std::uint32_t begin, std::uint32_t end, int worker) {
        std::uint32_t first = 0;  // item of the dispatch
        for (const std::size_t i : step.at_once) {
          const Command& command = commands_[i];
          const auto& dispatch = std::get<Dispatch>(command.what);
          const std::uint32_t from = std::max(begin, first) - first,
                              to = std::min(end - first, dispatch.items);
          if (from < to)
            naming(command, [&] {
              dispatch.function(
                  {dispatch.buffers, dispatch.bytes, dispatch.constants.data(), dispatch.groups}, from, to,
                  worker);
            });
          first += dispatch.items;
          if (first >= end) return;
        }
      },
      step.schedule);
}

void CpuCommandList::run(ThreadPool& pool) {
  times_.clear();
  for (const Step& step : steps_) run(step, pool);
}

}  // namespace meshloom::backends::cpu
