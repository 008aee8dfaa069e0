#include "trainer/execute/session.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "hal/error.h"
#include "hal/suggest.h"
#include "trainer/execute/initial_values.h"
#include "trainer/execute/lower.h"

namespace meshloom::trainer {
namespace {

// The placement of `name`, after checking that the host's data has its size.
const Placement& place_of(const Plan& plan, const std::string& name, std::size_t bytes) {
  const auto found = plan.persistent.find(name);
  if (found == plan.persistent.end()) {
    std::vector<std::string> names;
    for (const auto& [known, place] : plan.persistent) names.push_back(known);
    throw hal::Error("session, value '" + name + "'",
                     "must be one of the plan's" + hal::suggestion(name, names));
  }
  const Placement& place = found->second;
  if (static_cast<std::size_t>(place.bytes) != bytes)
    throw hal::Error("session, value '" + name + "'",
                     "must be given the " + std::to_string(place.bytes) + " bytes of " +
                         to_string(plan.persistent_types.at(name)),
                     std::to_string(bytes));
  return place;
}

}  // namespace

Session::Session(hal::Device& device, const kernels::Catalog& catalog, Plan plan)
    : device_(device), catalog_(catalog), plan_(std::move(plan)) {
  if (plan_.device != device.info().id || plan_.profile != device.profile().name)
    throw hal::Error("session",
                     "a plan must run on the device and profile that it was composed for (" + plan_.device +
                         " as " + plan_.profile + ")",
                     device.info().id + " as " + device.profile().name);
  for (const Block& block : plan_.blocks) buffers_.push_back(device.allocate(block.bytes, block.label));
  for (const auto& [step, planned] : plan_.steps.programs) {
    std::unique_ptr<hal::CommandList> list = device.record(planned.program.name);
    lower(planned, catalog, buffers_, device, *list);
    list->finish();
    lists_.emplace(step, std::move(list));
  }
}

void Session::write(const std::string& name, std::span<const std::byte> data) {
  const Placement& place = place_of(plan_, name, data.size());
  device_.write(*buffers_.at(static_cast<std::size_t>(place.block)), place.offset, data);
}

void Session::read(const std::string& name, std::span<std::byte> data) {
  const Placement& place = place_of(plan_, name, data.size());
  device_.read(*buffers_.at(static_cast<std::size_t>(place.block)), place.offset, data);
}

void Session::run(Step step) {
  plan_.steps.at(step);  // throws where the plan has no such program
  device_.submit(*lists_.at(step));
}

std::vector<double> Session::run_timed(Step step) {
  const PlannedProgram& planned = plan_.steps.at(step);
  std::unique_ptr<hal::CommandList>& list = timed_lists_[step];
  if (!list) {
    list = device_.record(planned.program.name + ", timed");
    lower(planned, catalog_, buffers_, device_, *list, true);
    list->finish();
  }
  device_.submit(*list);
  device_.wait();
  return list->intervals();
}

void initialize(Session& session, std::uint64_t seed) {
  const hal::Device& device = session.device();
  const hal::Profile& profile = device.profile();
  // When the host is the device, its profile says how many threads the run may use.
  const int threads = profile.kind == hal::ProfileKind::host && !device.runs_as_another()
                          ? static_cast<int>(profile.cores)
                          : static_cast<int>(std::thread::hardware_concurrency());
  std::vector<float> values;
  std::vector<std::byte> packed;
  std::vector<std::string> written;
  for (const layers::ParameterInfo& info : session.plan().parameters) {
    values.resize(static_cast<std::size_t>((info.storage ? info.storage->type : info.type).elements()));
    initial_values(info, seed, threads, values);
    if (info.storage) {
      packed.resize(static_cast<std::size_t>(info.type.bytes()));
      info.storage->quantize(values, packed);
    }
    session.write(info.path,
                  info.storage ? std::span<const std::byte>(packed) : std::as_bytes(std::span(values)));
    written.push_back(info.path);
  }
  std::sort(written.begin(), written.end());
  std::vector<std::byte> zeros;
  for (const auto& [name, type] : session.plan().persistent_types) {
    if (std::binary_search(written.begin(), written.end(), name)) continue;
    zeros.assign(static_cast<std::size_t>(type.bytes()), std::byte{0});
    session.write(name, zeros);
  }
}

}  // namespace meshloom::trainer
