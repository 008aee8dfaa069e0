#include "trainer/cli/self_test.h"

#include <algorithm>
#include <memory>

#include "hal/error.h"
#include "kernels/compare.h"
#include "kernels/random.h"

namespace meshloom::trainer {
namespace {

using kernels::HostTensor;

struct Placed {
  std::unique_ptr<hal::Buffer> buffer;
  hal::Binding binding;
};

Placed place(hal::Device& device, std::int64_t bytes, hal::Access access, const std::string& label) {
  Placed placed;
  placed.buffer = device.allocate((bytes + 3) / 4 * 4, label);
  placed.binding = {placed.buffer.get(), 0, bytes, access};
  return placed;
}

// The first variant that fits: those for the profile's kind before those for any, by rank.
const kernels::Variant* pick(const kernels::Catalog& catalog, const kernels::CallView& call,
                             const hal::DeviceInfo& device, kernels::Choice& choice) {
  std::vector<const kernels::Variant*> variants = catalog.variants(call.op, device.backend);
  std::stable_partition(variants.begin(), variants.end(), [&](const kernels::Variant* variant) {
    return !variant->kinds.empty() && variant->serves(device.profile.kind);
  });
  for (const kernels::Variant* variant : variants) {
    if (!variant->serves(device.profile.kind)) continue;
    kernels::Fit fit = variant->answer(call, device);
    if (!fit.ok) continue;
    choice = {variant, std::move(fit.params), fit.workspace_bytes, 0};
    return variant;
  }
  return nullptr;
}

SelfTest test_op(hal::Device& device, const kernels::Catalog& catalog, const std::string& op) {
  SelfTest result{op, "-", false, 0, {}};
  const kernels::Contract& contract = catalog.contract(op);
  const std::vector<kernels::Case> cases = contract.cases();
  const auto test = std::find_if(cases.begin(), cases.end(), [](const kernels::Case& c) { return !c.slow; });
  if (test == cases.end()) throw Error(op, "must have a case to test with", "none");
  const std::vector<kernels::TensorType> outputs = contract.infer(test->inputs, test->attrs);
  const kernels::CallView call{contract.name, test->inputs, outputs, test->attrs};
  kernels::Choice choice;
  const kernels::Variant* variant = pick(catalog, call, device.info(), choice);
  if (!variant) throw Error(op, "must have a variant that fits here", "none");
  result.variant = variant->name;

  const std::vector<HostTensor> inputs = kernels::make_inputs(contract, call, 1);
  std::vector<HostTensor> want;
  std::vector<kernels::ConstTensorView> input_views;
  std::vector<kernels::TensorView> want_views;
  for (const kernels::TensorType& type : outputs) want.emplace_back(type);
  for (const HostTensor& input : inputs) input_views.push_back({input.type, input.data.data()});
  for (HostTensor& tensor : want) want_views.push_back({tensor.type, tensor.data.data()});
  kernels::run_reference(contract, call, input_views, want_views);

  std::vector<Placed> placed;
  std::vector<hal::Binding> in, out;
  for (const HostTensor& input : inputs) {
    placed.push_back(place(device, input.type.bytes(), hal::Access::read, op + " input"));
    device.write(*placed.back().buffer, 0, input.data);
    in.push_back(placed.back().binding);
  }
  for (const HostTensor& output : want) {
    placed.push_back(place(device, output.type.bytes(), hal::Access::write, op + " output"));
    out.push_back(placed.back().binding);
  }
  hal::Binding workspace;
  if (choice.workspace_bytes > 0) {
    placed.push_back(place(device, choice.workspace_bytes, hal::Access::read_write, op + " workspace"));
    workspace = placed.back().binding;
  }
  const std::string label = "self-test " + op;
  const std::unique_ptr<hal::CommandList> commands = device.record(label);
  variant->record({call, choice, device, *commands, in, out, workspace, label});
  commands->finish();
  device.submit(*commands);
  device.wait();

  result.ok = true;
  for (std::size_t o = 0; o < want.size(); ++o) {
    HostTensor got(want[o].type);
    device.read(*out[o].buffer, 0, got.data);
    const kernels::Comparison comparison =
        kernels::compare({want[o].type, want[o].data.data()}, {got.type, got.data.data()}, contract.tolerance(call));
    result.worst = std::max(result.worst, comparison.worst);
    if (comparison.ok) continue;
    result.ok = false;
    result.problem = comparison.text;
  }
  return result;
}

}  // namespace

std::vector<SelfTest> self_test(hal::Device& device, const kernels::Catalog& catalog) {
  std::vector<SelfTest> results;
  for (const char* op : {"matmul", "flash_attention", "rms_norm", "elementwise"}) {
    try {
      results.push_back(test_op(device, catalog, op));
    } catch (const std::exception& error) {
      results.push_back({op, "-", false, 0, error.what()});
    }
  }
  return results;
}

}  // namespace meshloom::trainer
