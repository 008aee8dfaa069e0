// Variants with a planted bug: what they record.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/catalog.h"
#include "kernels/core/variant.h"

namespace meshloom::tests {

// What a planted bug works on: the call, its inputs as they are in memory, its outputs.
struct Host {
  const kernels::CallView& call;
  std::vector<kernels::ConstTensorView> inputs;
  std::vector<kernels::TensorView> outputs;
};

// Records `work` as the variant's only command. `beyond` asks for so many bytes more of the first output.
template <typename Work>
void on_host(const kernels::EncodeArgs& args, Work work, std::int64_t beyond = 0) {
  std::vector<hal::Binding> bindings(args.inputs.begin(), args.inputs.end());
  bindings.insert(bindings.end(), args.outputs.begin(), args.outputs.end());
  bindings[args.inputs.size()].bytes += beyond;
  args.commands.host_call(
      [op = std::string(args.call.op), in = args.call.inputs, out = args.call.outputs,
       attrs = args.call.attrs, work](std::span<const hal::HostRange> ranges) {
        const kernels::CallView call{op, in, out, attrs};
        Host host{call, {}, {}};
        for (std::size_t i = 0; i < in.size(); ++i) host.inputs.push_back({in[i], ranges[i].data});
        for (std::size_t o = 0; o < out.size(); ++o)
          host.outputs.push_back({out[o], ranges[in.size() + o].data});
        work(host);
      },
      bindings, args.label);
}

// The reference on copies of the inputs, then `spoil`.
template <typename Spoil>
void spoiled(const kernels::EncodeArgs& args, Spoil spoil, std::int64_t beyond = 0) {
  on_host(
      args,
      [reference = args.choice.variant->contract->reference, spoil](Host& host) {
        std::vector<std::vector<std::byte>> copies;
        std::vector<kernels::ConstTensorView> inputs;
        for (const kernels::ConstTensorView& x : host.inputs)
          copies.emplace_back(x.data, x.data + x.type.bytes());
        for (std::size_t i = 0; i < copies.size(); ++i)
          inputs.push_back({host.inputs[i].type, copies[i].data()});
        reference(host.call, inputs, host.outputs);
        spoil(host);
      },
      beyond);
}

}  // namespace meshloom::tests
