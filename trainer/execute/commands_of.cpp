#include "trainer/execute/commands_of.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hal/binding.h"
#include "hal/inspection.h"
#include "trainer/compose/graph.h"
#include "trainer/execute/lower.h"
#include "trainer/execute/planned_device.h"

namespace meshloom::trainer {
namespace {

class PlannedList : public hal::CommandList {
 public:
  explicit PlannedList(ProgramCommands& into) : into_(into) {}

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding>, std::span<const hal::Word>,
                const std::string& label) override {
    ++into_.launches;
    add(hal::invocations(executable->spec().workgroup, groups),
        *std::max_element(groups.begin(), groups.end()), label);
  }
  void copy(const hal::Binding& from, const hal::Binding&, const std::string& label) override {
    add(static_cast<double>(from.bytes) / hal::kBytesPerInvocation, 1, label);
  }
  void fill(const hal::Binding& to, hal::Word, const std::string& label) override {
    add(static_cast<double>(to.bytes) / hal::kBytesPerInvocation, 1, label);
  }
  void host_call(hal::HostFunction, std::span<const hal::Binding>, const std::string& label) override {
    into_.costs.add_alone();
    into_.labels.push_back(label);
  }
  void barrier() override {
    ++into_.barriers;
    add(0, 1, "");
  }
  int mark() override {
    into_.costs.add_alone();
    into_.labels.push_back("");
    return marks_++;
  }
  void predict(double seconds) override { into_.costs.predict(seconds); }
  void finish() override { into_.costs.close(); }

 private:
  void add(double weight, std::uint32_t parts, const std::string& label) {
    into_.costs.add(weight, parts);
    into_.labels.push_back(label);
  }
  ProgramCommands& into_;
  int marks_ = 0;
};

// By output: the input whose place it takes, -1 = none. An update of three values and more, as of a parameter and its moments, is
// in place in every plan, and has a kernel for that.
std::vector<int> places_of(const kernels::CallView& call, const kernels::Contract& contract) {
  constexpr std::ptrdiff_t kUpdated = 3;
  std::vector<int> places(call.outputs.size(), -1);
  for (const auto& [input, output] : contract.in_place(call))
    if (std::find(places.begin(), places.end(), input) == places.end() && places[at(output)] < 0)
      places[at(output)] = input;
  if (std::count_if(places.begin(), places.end(), [](int input) { return input >= 0; }) < kUpdated)
    places.assign(places.size(), -1);
  return places;
}

}  // namespace

void record_call(const kernels::CallView& call, const kernels::Choice& choice, hal::Device& device,
                 hal::CommandList& list, std::vector<std::unique_ptr<hal::Buffer>>& buffers,
                 const std::string& label) {
  const auto bind = [&](std::int64_t bytes, hal::Access access) {
    buffers.push_back(device.allocate(std::max<std::int64_t>((bytes + 3) / 4 * 4, 4), label));
    return hal::Binding{buffers.back().get(), 0, bytes, access};
  };
  std::vector<hal::Binding> inputs, outputs;
  for (const kernels::TensorType& type : call.inputs) inputs.push_back(bind(type.bytes(), hal::Access::read));
  const std::vector<int> places = places_of(call, *choice.variant->contract);
  for (std::size_t o = 0; o < places.size(); ++o)
    outputs.push_back(places[o] < 0 ? bind(call.outputs[o].bytes(), hal::Access::write)
                                    : hal::writes(inputs[at(places[o])]));
  hal::Binding workspace;
  if (choice.workspace_bytes > 0) workspace = bind(choice.workspace_bytes, hal::Access::read_write);
  choice.variant->record({call, choice, device, list, inputs, outputs, workspace, label});
}

std::vector<hal::ExecutableSpec> kernels_of(const kernels::CallView& call, const kernels::Choice& choice,
                                            const hal::DeviceInfo& device) {
  ProgramCommands commands;
  PlannedDevice planned(device);
  PlannedList list(commands);
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  record_call(call, choice, planned, list, buffers, std::string(call.op));
  return planned.loaded();
}

ProgramCommands commands_of(const PlannedProgram& planned, const kernels::Catalog& catalog,
                            const std::vector<Block>& blocks, const hal::DeviceInfo& info) {
  ProgramCommands commands;
  PlannedDevice device(info);
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  for (const Block& block : blocks)
    buffers.push_back(std::make_unique<PlannedBuffer>(block.bytes, block.label));
  PlannedList list(commands);
  lower(planned, catalog, buffers, device, list);
  list.finish();
  commands.kernels = device.loaded();
  return commands;
}

SubmissionSummary submissions_of(const Plan& plan, const kernels::Catalog& catalog,
                                 const hal::DeviceInfo& device, const hal::SubmissionSettings& settings) {
  SubmissionSummary summary;
  summary.budget = settings.budget;
  for (const UpdateStep& update : plan.steps.update) {
    const PlannedProgram& planned = plan.steps.at(update.step);
    if (planned.on_host) continue;
    const ProgramCommands commands = commands_of(planned, catalog, plan.blocks, device);
    const std::vector<hal::Submission> submissions =
        hal::cut_into_submissions(commands.costs.commands(), settings.budget);
    summary.launches += update.times * commands.launches;
    summary.barriers += update.times * commands.barriers;
    summary.count += update.times * static_cast<std::int64_t>(submissions.size());
    for (const hal::Submission& submission : submissions) {
      if (submission.seconds <= summary.longest) continue;
      summary.longest = submission.seconds;
      summary.longest_label = commands.labels.at(submission.pieces.front().command);
    }
  }
  return summary;
}

bool has_submissions(const hal::DeviceInfo& device) { return device.backend != "cpu"; }

}  // namespace meshloom::trainer
