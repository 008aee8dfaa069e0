#include "trainer/execute/inspect_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hal/error.h"
#include "hal/fused_launch.h"
#include "hal/suggest.h"
#include "kernels/program/call_text.h"
#include "trainer/compose/passes/select.h"
#include "trainer/execute/commands_of.h"

namespace meshloom::trainer {
namespace {

// Takes the commands of a call and keeps what they would run.
class InspectingList final : public hal::CommandList {
 public:
  InspectingList(InspectedCall& into, hal::Device& device, std::uint32_t fused)
      : into_(into), device_(device), fused_(fused) {}

  void dispatch(const std::shared_ptr<hal::Executable>& executable, std::array<std::uint32_t, 3> groups,
                std::span<const hal::Binding> bindings, std::span<const hal::Word>,
                const std::string& label) override {
    if (fused_ > 1 && executable->spec().fused == 1) {
      std::vector<hal::Binding> all;
      for (std::uint32_t i = 0; i < fused_; ++i) all.insert(all.end(), bindings.begin(), bindings.end());
      const std::array<std::uint32_t, 3> along_x{fused_ * groups[0] * groups[1] * groups[2], 1, 1};
      return dispatch(device_.load(hal::fused_spec(executable->spec(), fused_)), along_x, all, {}, label);
    }
    const auto* inspectable = dynamic_cast<const hal::InspectableExecutable*>(executable.get());
    if (!inspectable)
      throw Error(label, "kernels are inspected on a device that was opened for it",
                  executable->spec().kernel);
    for (InspectedPipeline& known : into_.pipelines)
      if (known.spec.key() == executable->spec().key()) {
        ++known.dispatches;
        return;
      }
    into_.pipelines.push_back({executable->spec(), groups, 1, inspectable->inspect(bindings)});
  }
  void copy(const hal::Binding&, const hal::Binding&, const std::string&) override {}
  void fill(const hal::Binding&, hal::Word, const std::string&) override {}
  void host_call(hal::HostFunction, std::span<const hal::Binding>, const std::string&) override {
    ++into_.host_calls;
  }
  void barrier() override {}
  void finish() override {}

 private:
  InspectedCall& into_;
  hal::Device& device_;
  std::uint32_t fused_;
};

std::string reasons(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                    const kernels::CallView& call) {
  std::string text;
  for (const kernels::Variant* variant : catalog.variants(call.op, device.backend)) {
    if (variant->name == "reference") continue;
    const kernels::Fit fit = variant->answer(call, device);
    text += (text.empty() ? "" : "; ") + variant->name + ": " +
            (fit.ok ? "it is made for another kind of profile; --variant names it" : fit.reason);
  }
  return text.empty() ? "no variant of the op" : text;
}

kernels::Choice named(const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                      const kernels::CallView& call, const std::string& name, const std::string& where) {
  const kernels::Variant* variant = catalog.find(call.op, device.backend, name);
  if (!variant) {
    std::vector<std::string> names;
    for (const kernels::Variant* one : catalog.variants(call.op, device.backend)) names.push_back(one->name);
    throw Error(where, "the variant must be one of " + hal::join(names) + hal::suggestion(name, names),
                "'" + name + "'");
  }
  kernels::Fit fit = variant->answer(call, device);
  if (!fit.ok) throw Error(where, "the variant " + name + " must fit on " + device.name, fit.reason);
  kernels::Choice choice;
  choice.variant = variant;
  choice.params = std::move(fit.params);
  choice.workspace_bytes = fit.workspace_bytes;
  return choice;
}

}  // namespace

InspectedCall inspect_call(const kernels::Catalog& catalog, hal::Device& device,
                           const kernels::Contract& contract, const kernels::Case& call,
                           const std::string& variant, std::uint32_t fused) {
  const std::string text = kernels::call_text(contract.name, call.inputs, call.attrs);
  if (fused > 1 && device.info().limits.max_parameter_bytes == 0)
    throw Error(text, "launches of several dispatches are for devices of OpenCL", device.info().id);
  if (contract.view) throw Error(text, "must be an op that runs a kernel", "a view");
  const std::vector<kernels::TensorType> outputs = contract.infer(call.inputs, call.attrs);
  const kernels::CallView view{contract.name, call.inputs, outputs, call.attrs};
  const kernels::Choice choice =
      variant.empty() ? select_one(catalog, device.info(), contract.name, call.inputs, call.attrs)
                      : named(catalog, device.info(), view, variant, text);
  if (choice.variant->name == "reference")
    throw Error(text, "a variant must fit on " + device.info().name + ", or the host computes it",
                reasons(catalog, device.info(), view));
  return inspect_choice(device, contract, call, choice, fused);
}

InspectedCall inspect_choice(hal::Device& device, const kernels::Contract& contract,
                             const kernels::Case& call, const kernels::Choice& choice, std::uint32_t fused) {
  InspectedCall found;
  found.call = kernels::call_text(contract.name, call.inputs, call.attrs);
  found.choice = choice;
  const std::vector<kernels::TensorType> outputs = contract.infer(call.inputs, call.attrs);
  const kernels::CallView view{contract.name, call.inputs, outputs, call.attrs};
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  InspectingList list(found, device, fused);
  record_call(view, found.choice, device, list, buffers, found.call);
  return found;
}

}  // namespace meshloom::trainer
