#include "kernels/core/self_test_run.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/core/compare.h"
#include "kernels/core/rng.h"

namespace meshloom::kernels {
namespace {

struct Placed {
  std::unique_ptr<hal::Buffer> buffer;
  hal::Binding binding;
};

Placed place(hal::Device& device, std::int64_t bytes, hal::Access access, const std::string& label,
             const HostTensor* contents) {
  Placed placed;
  placed.buffer = device.allocate((bytes + 3) / 4 * 4, label);
  placed.binding = {placed.buffer.get(), 0, bytes, access};
  if (contents) {
    device.write(*placed.buffer, 0, contents->data);
  } else {
    const std::vector<std::byte> nan(static_cast<std::size_t>(placed.buffer->bytes()), std::byte{0xff});
    device.write(*placed.buffer, 0, nan);
  }
  return placed;
}

}  // namespace

CallCheck check_call(hal::Device& device, const Contract& contract, const CallView& call,
                     const Choice& choice, std::uint64_t seed) {
  const std::vector<HostTensor> inputs = make_inputs(contract, call, seed);
  std::vector<HostTensor> want;
  std::vector<ConstTensorView> input_views;
  std::vector<TensorView> want_views;
  for (const TensorType& type : call.outputs) want.emplace_back(type);
  for (const HostTensor& input : inputs) input_views.push_back({input.type, input.data.data()});
  for (HostTensor& tensor : want) want_views.push_back({tensor.type, tensor.data.data()});
  run_reference(contract, call, input_views, want_views);

  const std::string label = "self-test " + std::string(call.op);
  std::vector<Placed> placed;
  std::vector<hal::Binding> in, out;
  for (const HostTensor& input : inputs) {
    placed.push_back(place(device, input.type.bytes(), hal::Access::read, label + ", input", &input));
    in.push_back(placed.back().binding);
  }
  for (const HostTensor& output : want) {
    placed.push_back(place(device, output.type.bytes(), hal::Access::write, label + ", output", nullptr));
    out.push_back(placed.back().binding);
  }
  hal::Binding workspace;
  if (choice.workspace_bytes > 0) {
    placed.push_back(
        place(device, choice.workspace_bytes, hal::Access::read_write, label + ", workspace", nullptr));
    workspace = placed.back().binding;
  }
  const std::unique_ptr<hal::CommandList> commands = device.record(label);
  choice.variant->record({call, choice, device, *commands, in, out, workspace, label});
  commands->finish();
  device.submit(*commands);
  device.wait();

  CallCheck check;
  std::vector<HostTensor> got;
  for (std::size_t o = 0; o < want.size(); ++o)
    device.read(*out[o].buffer, 0, got.emplace_back(want[o].type).data);
  for (std::size_t o = 0; o < want.size(); ++o) {
    const Comparison comparison = compare_output(contract, call, inputs, want, got, static_cast<int>(o));
    check.worst = std::max(check.worst, comparison.worst);
    if (comparison.ok) continue;
    check.ok = false;
    check.problem = comparison.text;
  }
  return check;
}

}  // namespace meshloom::kernels
