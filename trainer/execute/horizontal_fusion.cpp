#include "trainer/execute/horizontal_fusion.h"

#include <algorithm>
#include <utility>

#include "hal/binding.h"
#include "hal/environment.h"
#include "hal/fused_launch.h"
#include "hal/inspection.h"

namespace meshloom::trainer {
namespace {

using hal::Binding;
using hal::ExecutableSpec;

constexpr std::size_t kMaxFused = 8;
constexpr std::size_t kLookAhead =
    192;  // commands behind a dispatch among which others of its kernel are sought
constexpr double kSmallInvocations =
    1 << 20;  // beyond them a dispatch runs for much longer than a launch takes
constexpr std::int64_t kBytesPerBinding = 16;  // a pointer and an offset
constexpr std::int64_t kGridBytes = 3 * 16;    // of the launch, with what aligns it
constexpr std::size_t kMaxArguments = 255;     // of a kernel: OpenCL 3.0, section 5.9

bool conflict(const std::vector<Binding>& a, const std::vector<Binding>& b) {
  for (const Binding& x : a)
    for (const Binding& y : b)
      if (hal::conflict(x, y)) return true;
  return false;
}

// The largest number of dispatches of the kernel whose arguments a launch has room for.
std::size_t max_fused(const ExecutableSpec& spec, std::int64_t parameter_bytes) {
  const std::int64_t each = kBytesPerBinding * static_cast<std::int64_t>(spec.bindings.size()) +
                            4 * static_cast<std::int64_t>(spec.constant_words + hal::kFusedWords);
  const std::size_t arguments = 2 * spec.bindings.size() + spec.constant_words + hal::kFusedWords;
  for (std::size_t count = kMaxFused; count > 1; count /= 2)
    if (static_cast<std::int64_t>(count) * each + kGridBytes <= parameter_bytes &&
        count * arguments + 2 <= kMaxArguments)
      return count;
  return 1;
}

}  // namespace

bool fuses_dispatches(const hal::DeviceInfo& device) {
  const auto tested = device.self_test_results.find(hal::kFusedLaunches);
  if (tested != device.self_test_results.end() && !tested->second.empty()) return false;
  return device.limits.max_parameter_bytes > 0 &&
         hal::number_from_environment("MESHLOOM_HORIZONTAL_FUSION", device.is_cpu ? 0 : 1) != 0;
}

HorizontalFusion::HorizontalFusion(hal::Device& device, hal::CommandList& into)
    : real_(device), planned_(device.info()), into_(into) {}

void HorizontalFusion::add(std::string label, double weight, std::vector<Binding> bindings,
                           decltype(Command::what) what) {
  costs_.add(weight, 1);
  commands_.push_back({std::move(label), std::move(bindings), std::move(what)});
}

void HorizontalFusion::dispatch(const std::shared_ptr<hal::Executable>& executable,
                                std::array<std::uint32_t, 3> groups, std::span<const Binding> bindings,
                                std::span<const hal::Word> constants, const std::string& label) {
  const ExecutableSpec& spec = executable->spec();
  const double count = hal::invocations(spec.workgroup, groups);
  const bool is_small = count <= kSmallInvocations;
  add(label, count, {bindings.begin(), bindings.end()},
      Dispatch{executable,
               groups,
               {constants.begin(), constants.end()},
               is_small ? max_fused(spec, real_.info().limits.max_parameter_bytes) : 1});
}

void HorizontalFusion::copy(const Binding& from, const Binding& to, const std::string& label) {
  Binding source = from, target = to;
  source.access = hal::Access::read;
  target.access = hal::Access::write;
  add(label, static_cast<double>(from.bytes) / hal::kBytesPerInvocation, {source, target}, Copy{});
}

void HorizontalFusion::fill(const Binding& to, hal::Word value, const std::string& label) {
  Binding target = to;
  target.access = hal::Access::write;
  add(label, static_cast<double>(to.bytes) / hal::kBytesPerInvocation, {target}, Fill{value});
}

void HorizontalFusion::host_call(hal::HostFunction function, std::span<const Binding> bindings,
                                 const std::string& label) {
  add(label, 0, {bindings.begin(), bindings.end()}, HostCall{std::move(function)});
}

int HorizontalFusion::mark() {
  add("", 0, {}, Mark{});
  return marks_++;
}

bool HorizontalFusion::is_fence(const Command& command) {
  return std::holds_alternative<HostCall>(command.what) || std::holds_alternative<Mark>(command.what);
}

const HorizontalFusion::Dispatch* HorizontalFusion::sharing(std::size_t command) const {
  const auto* dispatch = std::get_if<Dispatch>(&commands_[command].what);
  return dispatch && dispatch->max_fused > 1 ? dispatch : nullptr;
}

std::size_t HorizontalFusion::room(const Launch& launch) const {
  return sharing(launch.front())->max_fused - launch.size();
}

void HorizontalFusion::add_later(Launch& launch, std::size_t next) const {
  const std::size_t end = std::min(commands_.size(), next + kLookAhead);
  for (std::size_t i = next; i < end && room(launch) > 0; ++i) {
    const Command& command = commands_[i];
    if (is_fence(command)) break;
    const Dispatch* dispatch = sharing(i);
    if (ran_[i] || !dispatch || dispatch->executable != sharing(launch.front())->executable) continue;
    bool independent = true;
    for (std::size_t k = next; k < i && independent; ++k)
      independent = ran_[k] || !conflict(commands_[k].bindings, command.bindings);
    for (const Launch& others : waiting_)
      for (const std::size_t k : others)
        independent = independent && !conflict(commands_[k].bindings, command.bindings);
    for (const std::size_t k : launch)
      independent = independent && !conflict(commands_[k].bindings, command.bindings);
    if (!independent) continue;
    launch.push_back(i);
  }
}

void HorizontalFusion::run(Launch launch, std::size_t next) {
  if (sharing(launch.front())) add_later(launch, next);
  for (const std::size_t i : launch) ran_[i] = 1;
  record(launch);
}

void HorizontalFusion::run_waiting(std::size_t next) {
  while (!waiting_.empty()) {
    Launch launch = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    run(std::move(launch), next);
  }
}

void HorizontalFusion::finish() {
  costs_.close();
  ran_.assign(commands_.size(), 0);
  for (std::size_t next = 0; next < commands_.size(); ++next) {
    if (ran_[next]) continue;
    const Command& command = commands_[next];
    const auto waits_for = [&](const Launch& launch) {
      return std::any_of(launch.begin(), launch.end(),
                         [&](std::size_t k) { return conflict(commands_[k].bindings, command.bindings); });
    };
    if (is_fence(command)) run_waiting(next);
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if (!waits_for(*at)) {
        ++at;
        continue;
      }
      Launch launch = std::move(*at);
      at = waiting_.erase(at);
      run(std::move(launch), next);
    }
    const Dispatch* dispatch = sharing(next);
    if (!dispatch) {
      run({next}, next);
      continue;
    }
    const auto beside = std::find_if(waiting_.begin(), waiting_.end(), [&](const Launch& launch) {
      return sharing(launch.front())->executable == dispatch->executable;
    });
    if (beside == waiting_.end()) {
      waiting_.push_back({next});
    } else {
      beside->push_back(next);
      if (room(*beside) == 0) {
        Launch launch = std::move(*beside);
        waiting_.erase(beside);
        run(std::move(launch), next + 1);
      }
    }
  }
  run_waiting(commands_.size());
}

void HorizontalFusion::record(const Launch& launch) {
  double seconds = 0;
  for (const std::size_t i : launch) seconds += costs_.commands()[i].seconds;
  into_.predict(seconds);
  into_.barrier();
  if (launch.size() > 1)
    record_fused(launch);
  else
    record_one(commands_[launch.front()]);
}

void HorizontalFusion::record_one(Command& command) {
  if (const auto* dispatch = std::get_if<Dispatch>(&command.what))
    into_.dispatch(real_.load(dispatch->executable->spec()), dispatch->groups, command.bindings,
                   dispatch->constants, command.label);
  else if (std::holds_alternative<Copy>(command.what))
    into_.copy(command.bindings[0], command.bindings[1], command.label);
  else if (const auto* fill = std::get_if<Fill>(&command.what))
    into_.fill(command.bindings[0], fill->value, command.label);
  else if (auto* call = std::get_if<HostCall>(&command.what))
    into_.host_call(std::move(call->function), command.bindings, command.label);
  else
    into_.mark();
}

void HorizontalFusion::record_fused(const Launch& launch) {
  const Command& first = commands_[launch.front()];
  const ExecutableSpec& one = std::get<Dispatch>(first.what).executable->spec();
  std::uint32_t count = 2;
  while (count < launch.size()) count *= 2;
  hal::FusedLaunch fused(one, count);
  for (const std::size_t i : launch) {
    const auto& dispatch = std::get<Dispatch>(commands_[i].what);
    fused.add(dispatch.groups, commands_[i].bindings, dispatch.constants);
  }
  for (std::size_t i = launch.size(); i < count; ++i)
    fused.add({0, 0, 0}, first.bindings, std::get<Dispatch>(first.what).constants);
  fused.record(real_, into_, first.label + " and " + std::to_string(launch.size() - 1) + " more");
}

}  // namespace meshloom::trainer
