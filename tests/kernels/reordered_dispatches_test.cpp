// Kernels whose dispatches share launches (OpenCL) or run side by side (Vulkan): each computes what it does alone, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hal/math.h"
#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "tests/kernels/harness.h"
#include "trainer/execute/horizontal_fusion.h"
#include "trainer/execute/list_scheduler.h"

namespace meshloom::tests {
namespace {

using hal::Access;
using hal::Binding;
using trainer::HorizontalFusion;
using trainer::ListScheduler;
using trainer::ReorderedCommands;

// Every variant for OpenCL and Vulkan: its first case that fits, three times with inputs of its own, one behind another and reordered.
std::vector<VariantTarget> reordered_targets() {
  std::vector<VariantTarget> all = variant_targets();
  std::erase_if(all, [](const VariantTarget& target) {
    return (target.backend != "opencl" && target.backend != "vulkan") || target.variant == "reference";
  });
  return all;
}

struct Instance {
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  std::vector<Binding> inputs, outputs;
  Binding workspace;
};

class ReorderedVariants : public testing::TestWithParam<VariantTarget> {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == GetParam().backend) {
        if (found.devices.empty()) GTEST_SKIP() << found.why_none;
        device_ = hal::checked(registry_.open(found.devices.front().id, ""));
      }
    if (!device_) GTEST_SKIP() << GetParam().backend << " was not built";
  }

  Binding place(Instance& of, std::int64_t bytes, Access access, const std::vector<std::byte>& contents) {
    of.buffers.push_back(device_->allocate(hal::round_up(std::max<std::int64_t>(bytes, 4), 4), "tensor"));
    std::vector<std::byte> image(static_cast<std::size_t>(of.buffers.back()->bytes()));
    std::copy(contents.begin(), contents.end(), image.begin());
    device_->write(*of.buffers.back(), 0, image);
    return {of.buffers.back().get(), 0, bytes, access};
  }

  Instance instance(const CaseCall& call, const kernels::Fit& fit, std::uint64_t seed) {
    Instance made;
    for (const kernels::HostTensor& tensor : kernels::make_inputs(call.contract(), call.view(), seed))
      made.inputs.push_back(
          place(made, tensor.type.bytes(), Access::read, {tensor.data.begin(), tensor.data.end()}));
    for (const kernels::TensorType& type : call.view().outputs)
      made.outputs.push_back(place(made, type.bytes(), Access::write, {}));
    if (fit.workspace_bytes > 0) made.workspace = place(made, fit.workspace_bytes, Access::read_write, {});
    return made;
  }

  // The outputs of all instances, behind one another.
  std::vector<std::byte> results(const std::vector<Instance>& instances) {
    std::vector<std::byte> all;
    for (const Instance& instance : instances)
      for (const Binding& output : instance.outputs) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(output.bytes));
        device_->read(*output.buffer, 0, bytes);
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    return all;
  }

  std::unique_ptr<ReorderedCommands> reordered_into(hal::CommandList& list) {
    if (GetParam().backend == "opencl") return std::make_unique<HorizontalFusion>(*device_, list);
    return std::make_unique<ListScheduler>(*device_, list);
  }

  std::vector<std::byte> run(const CaseCall& call, const kernels::Choice& choice, const kernels::Fit& fit,
                             bool reorder, double predicted = 0) {
    std::vector<Instance> instances;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) instances.push_back(instance(call, fit, seed));
    const auto list = device_->record("test");
    const auto reordered = reorder ? reordered_into(*list) : nullptr;
    hal::CommandList& into = reordered ? *reordered : *list;
    hal::Device& loader = reordered ? reordered->device() : *device_;
    for (const Instance& one : instances) {
      into.barrier();
      into.predict(predicted);
      choice.variant->record(
          {call.view(), choice, loader, into, one.inputs, one.outputs, one.workspace, "test"});
    }
    if (reordered) reordered->finish();
    list->finish();
    device_->submit(*list);
    device_->wait();
    return results(instances);
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::unique_ptr<hal::Device> device_;
};

TEST_P(ReorderedVariants, ComputeWhatTheyDoAlone) {
  const kernels::Contract& contract = catalog_.contract(GetParam().op);
  const kernels::Variant& variant = *catalog_.find(GetParam().op, GetParam().backend, GetParam().variant);
  if (!variant.kinds.empty()) {
    const std::string profile = profile_for(*device_, variant.kinds.front());
    if (!profile.empty()) device_->run_as(hal::find_profile(profile));
  }
  std::string refusal = "there is no case";
  for (const kernels::Case& test : contract.cases()) {
    if (test.slow) continue;
    const CaseCall call(catalog_, contract.name, test);
    const kernels::Fit fit = variant.answer(call.view(), device_->info());
    if (!fit.ok) {
      refusal = fit.reason;
      continue;
    }
    kernels::Choice choice;
    choice.variant = &variant;
    choice.params = fit.params;
    choice.workspace_bytes = fit.workspace_bytes;
    const std::vector<std::byte> alone = run(call, choice, fit, false);
    EXPECT_TRUE(run(call, choice, fit, true) == alone) << test.name;
    constexpr double kSecondsToBeCut = 2;  // 40 budgets of submissions
    EXPECT_TRUE(run(call, choice, fit, true, kSecondsToBeCut) == alone) << test.name << ", cut";
    return;
  }
  GTEST_SKIP() << variant.name << " refuses: " << refusal;
}

INSTANTIATE_TEST_SUITE_P(Ops, ReorderedVariants, testing::ValuesIn(reordered_targets()),
                         [](const auto& info) {
                           return info.param.backend + "_" + info.param.op + "_" + info.param.variant;
                         });

}  // namespace
}  // namespace meshloom::tests
