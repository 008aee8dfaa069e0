#include "trainer/run/state/snapshots.h"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "hal/math.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/run/state/stored_run.h"

namespace meshloom::trainer {
namespace {

struct Value {
  std::string name;
  std::int64_t bytes = 0;
  bool frozen = false;
};

// What a checkpoint holds: nothing else outlives a step.
std::vector<Value> values_of(const Plan& plan) {
  std::set<std::string> frozen;
  for (const layers::ParameterInfo& parameter : plan.parameters)
    if (parameter.frozen) frozen.insert(parameter.path);
  std::vector<Value> values;
  for (const std::vector<NamedTensor>& tensors : {model_tensors(plan), state_tensors(plan)})
    for (const NamedTensor& tensor : tensors)
      values.push_back({tensor.name, tensor.type.bytes(), frozen.count(tensor.name) > 0});
  return values;
}

std::int64_t place_bytes(std::int64_t bytes) {
  return hal::round_up(bytes, static_cast<std::int64_t>(hal::kHostAlignment));
}

}  // namespace

std::int64_t Snapshots::bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const Value& value : values_of(plan)) bytes += (value.frozen ? 1 : 2) * place_bytes(value.bytes);
  return bytes;
}

Snapshots::Snapshots(const Plan& plan) : plan_(plan) {
  std::int64_t changing = 0, frozen = 0;
  for (const Value& value : values_of(plan)) {
    std::int64_t& end = value.frozen ? frozen : changing;
    places_[value.name] = {end, value.bytes, value.frozen};
    end += place_bytes(value.bytes);
  }
  if (frozen > 0) frozen_ = hal::host_memory(static_cast<std::size_t>(frozen));
  for (hal::HostMemory& copy : copies_) copy = hal::host_memory(static_cast<std::size_t>(changing));
}

std::span<std::byte> Snapshots::span(const Place& place, int copy) const {
  const hal::HostMemory& memory = place.frozen ? frozen_ : copies_[static_cast<std::size_t>(copy)];
  return {memory.get() + place.offset, static_cast<std::size_t>(place.bytes)};
}

void Snapshots::read(Session& session) {
  for (const auto& [name, place] : places_)
    if (!place.frozen || !has_frozen_) session.read(name, span(place, 1 - newest_));
  has_frozen_ = true;
}

void Snapshots::commit(RunPosition position) {
  newest_ = 1 - newest_;
  position_ = std::move(position);
}

void Snapshots::value(const std::string& name, std::span<std::byte> into) const {
  const std::span<std::byte> from = span(places_.at(name), newest_);
  std::memcpy(into.data(), from.data(), into.size());
}

void Snapshots::restore(Session& session) const {
  for (const auto& [name, place] : places_) session.write(name, span(place, newest_));
  std::vector<std::byte> zeros;
  for (const auto& [name, type] : plan_.persistent_types) {
    if (places_.count(name) || is_parameter_copy(name)) continue;
    zeros.assign(static_cast<std::size_t>(type.bytes()), std::byte{0});
    session.write(name, zeros);
  }
}

}  // namespace meshloom::trainer
