#include "tests/kernels/harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "hal/math.h"
#include "hal/submission.h"
#include "kernels/core/compare.h"
#include "kernels/core/rng.h"
#include "kernels/program/call_text.h"

namespace meshloom::tests {
namespace {

using kernels::HostTensor;
using Pairs = std::vector<std::pair<int, int>>;  // (input, output) in one storage

constexpr std::uint32_t kCanary = 0x7fd5d5d5;  // a NaN: whoever reads it shows it
constexpr std::int64_t kCanaryBytes = 256;
constexpr double kSecondsToBeCut = 2;  // 40 budgets of submissions

// A tensor in a buffer of its own, with canaries on both sides.
struct Placed {
  std::unique_ptr<hal::Buffer> buffer;
  hal::Binding binding;
};

class Run {
 public:
  Run(hal::Device& device, const kernels::Variant& variant, const CaseCall& call,
      const kernels::Choice& choice, const std::vector<HostTensor>& inputs,
      const std::vector<HostTensor>& want, const Pairs& pairs, double predicted = 0)
      : device_(device), variant_(variant), call_(call), inputs_(inputs), want_(want), pairs_(pairs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      in_.push_back(
          place("input " + std::to_string(i), inputs[i].type.bytes(), &inputs[i],
                shared_output(static_cast<int>(i)) < 0 ? hal::Access::read : hal::Access::read_write));
      in_bindings_.push_back(in_.back().binding);
      in_bindings_.back().access = hal::Access::read;
    }
    for (std::size_t o = 0; o < want.size(); ++o) {
      const int input = shared_input(static_cast<int>(o));
      if (input < 0)
        out_.push_back(
            place("output " + std::to_string(o), want[o].type.bytes(), nullptr, hal::Access::write));
      else
        out_.push_back({nullptr, in_[static_cast<std::size_t>(input)].binding});
      out_bindings_.push_back(out_.back().binding);
      out_bindings_.back().access = hal::Access::write;
    }
    if (choice.workspace_bytes > 0)
      workspace_ = place("workspace", choice.workspace_bytes, nullptr, hal::Access::read_write);
    list_ = device.record("test");
    const std::string label = variant.op + " " + variant.name;
    list_->predict(predicted);
    variant.record(
        {call.view(), choice, device, *list_, in_bindings_, out_bindings_, workspace_.binding, label});
    list_->finish();
  }

  void submit() {
    device_.submit(*list_);
    device_.wait();
  }

  std::vector<HostTensor> outputs() const {
    std::vector<HostTensor> result;
    for (std::size_t o = 0; o < want_.size(); ++o) {
      HostTensor& tensor = result.emplace_back(want_[o].type);
      device_.read(*out_bindings_[o].buffer, out_bindings_[o].offset, tensor.data);
    }
    return result;
  }

  // What was overwritten that must not be.
  std::vector<std::string> trespasses() const {
    std::vector<std::string> found;
    const auto look = [&](const Placed& placed, const HostTensor* unchanged) {
      if (!placed.buffer) return;
      std::vector<std::byte> bytes(static_cast<std::size_t>(placed.buffer->bytes()));
      device_.read(*placed.buffer, 0, bytes);
      const auto begin = static_cast<std::size_t>(placed.binding.offset);
      const auto end = begin + static_cast<std::size_t>(placed.binding.bytes);
      for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        if (at >= begin && at < end) continue;
        std::uint32_t word;
        std::memcpy(&word, bytes.data() + at, 4);
        if (word == kCanary) continue;
        found.push_back(fmt::format("{}: wrote outside its {} bytes, at byte {}", placed.buffer->label(),
                                    placed.binding.bytes,
                                    static_cast<std::int64_t>(at) - static_cast<std::int64_t>(begin)));
        break;
      }
      if (unchanged && std::memcmp(bytes.data() + begin, unchanged->data.data(), unchanged->data.size()) != 0)
        found.push_back(placed.buffer->label() + ": an input was changed");
    };
    for (std::size_t i = 0; i < in_.size(); ++i)
      look(in_[i], shared_output(static_cast<int>(i)) < 0 ? &inputs_[i] : nullptr);
    for (const Placed& placed : out_) look(placed, nullptr);
    look(workspace_, nullptr);
    return found;
  }

 private:
  int shared_input(int output) const {
    for (const auto& [i, o] : pairs_)
      if (o == output) return i;
    return -1;
  }
  int shared_output(int input) const {
    for (const auto& [i, o] : pairs_)
      if (i == input) return o;
    return -1;
  }

  Placed place(const std::string& label, std::int64_t bytes, const HostTensor* contents, hal::Access access) {
    const std::int64_t alignment = std::max<std::int64_t>(device_.info().limits.offset_alignment, 4);
    const std::int64_t offset = hal::round_up(kCanaryBytes, alignment);
    Placed placed;
    placed.buffer = device_.allocate(offset + hal::round_up(bytes, 4) + kCanaryBytes, label);
    placed.binding = {placed.buffer.get(), offset, bytes, access};
    std::vector<std::uint32_t> image(static_cast<std::size_t>(placed.buffer->bytes() / 4), kCanary);
    if (contents)
      std::memcpy(reinterpret_cast<std::byte*>(image.data()) + offset, contents->data.data(),
                  contents->data.size());
    device_.write(*placed.buffer, 0, std::as_bytes(std::span(image)));
    return placed;
  }

  hal::Device& device_;
  const kernels::Variant& variant_;
  const CaseCall& call_;
  const std::vector<HostTensor>& inputs_;
  const std::vector<HostTensor>& want_;
  Pairs pairs_;
  std::vector<Placed> in_, out_;
  std::vector<hal::Binding> in_bindings_, out_bindings_;
  Placed workspace_;
  std::unique_ptr<hal::CommandList> list_;
};

// No pair, each pair alone, and as many as go together.
std::vector<Pairs> sharings(const Pairs& allowed) {
  std::vector<Pairs> result{{}};
  Pairs joint;
  std::set<int> inputs, outputs;
  for (const auto& pair : allowed) {
    result.push_back({pair});
    if (inputs.count(pair.first) || outputs.count(pair.second)) continue;
    inputs.insert(pair.first);
    outputs.insert(pair.second);
    joint.push_back(pair);
  }
  if (joint.size() > 1) result.push_back(joint);
  return result;
}

std::string describe(const Pairs& pairs) {
  std::string text;
  for (const auto& [input, output] : pairs)
    text += fmt::format(", output {} in place of input {}", output, input);
  return text;
}

}  // namespace

CaseCall::CaseCall(const kernels::Catalog& catalog, const std::string& op, const kernels::Case& test)
    : contract_(catalog.contract(op)) {
  program_.name = op + " " + test.name;
  kernels::Builder builder(catalog, program_);
  std::vector<kernels::Tensor> inputs;
  for (std::size_t i = 0; i < test.inputs.size(); ++i)
    inputs.push_back(builder.input("in" + std::to_string(i), test.inputs[i], kernels::Role::input));
  for (kernels::Tensor output : builder.call(op, inputs, test.attrs)) {
    if (test.attrs.has("memory") && test.attrs.text("memory") == to_string(hal::MemoryKind::host))
      program_.value(output.id).memory = hal::MemoryKind::host;
    builder.output(output);
  }
  types_ = std::make_unique<kernels::CallTypes>(program_, program_.calls.front());
}

std::vector<HostTensor> reference_outputs(const kernels::Contract& contract, const kernels::CallView& call,
                                          const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> results;
  std::vector<kernels::ConstTensorView> in;
  std::vector<kernels::TensorView> out;
  for (const HostTensor& tensor : inputs) in.push_back({tensor.type, tensor.data.data()});
  for (const kernels::TensorType& type : call.outputs) results.emplace_back(type);
  for (HostTensor& tensor : results) out.push_back({tensor.type, tensor.data.data()});
  kernels::run_reference(contract, call, in, out);
  return results;
}

Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const CaseCall& call,
                    std::uint64_t seed) {
  return run_variant(device, variant, variant.answer(call.view(), device.info()), call, seed);
}

Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const kernels::Fit& fit,
                    const CaseCall& call, std::uint64_t seed) {
  if (!fit.ok) return run_variant(device, variant, fit, call, {}, {});
  const std::vector<HostTensor> inputs = kernels::make_inputs(call.contract(), call.view(), seed);
  Outcome outcome = run_variant(device, variant, fit, call, inputs,
                                reference_outputs(call.contract(), call.view(), inputs));
  for (std::string& failure : outcome.failures) failure += fmt::format(", seed {}", seed);
  return outcome;
}

Outcome run_variant(hal::Device& device, const kernels::Variant& variant, const kernels::Fit& fit,
                    const CaseCall& call, const std::vector<HostTensor>& inputs,
                    const std::vector<HostTensor>& want) {
  Outcome outcome;
  const kernels::CallView view = call.view();
  std::string what =
      fmt::format("{} '{}' on {} as {}, {}: {}", variant.op, variant.name, device.info().id,
                  device.profile().name, call.program().name, kernels::inputs_text(view.inputs, view.attrs));
  for (const auto& [name, value] : fit.params) what += fmt::format(" {}={}", name, value);
  const auto fail = [&](const std::string& text) { outcome.failures.push_back(what + text); };

  if (!fit.ok) {
    outcome.refusal = fit.reason;
    if (fit.reason.empty()) fail(": refused without a reason");
    return outcome;
  }
  kernels::Choice choice;
  choice.variant = &variant;
  choice.params = fit.params;
  choice.workspace_bytes = fit.workspace_bytes;

  outcome.ran = true;
  for (const Pairs& pairs : sharings(call.contract().in_place(view))) {
    const std::string how = describe(pairs);
    try {
      Run run(device, variant, call, choice, inputs, want, pairs);
      run.submit();
      const std::vector<HostTensor> got = run.outputs();
      for (std::size_t o = 0; o < want.size(); ++o) {
        const kernels::Comparison comparison =
            kernels::compare_output(call.contract(), view, inputs, want, got, static_cast<int>(o));
        outcome.worst = std::max(outcome.worst, comparison.worst);
        if (!comparison.ok) fail(fmt::format("{}: output {}: {}", how, o, comparison.text));
      }
      if (pairs.empty()) {
        run.submit();
        const std::vector<HostTensor> again = run.outputs();
        for (std::size_t o = 0; o < want.size(); ++o)
          if (got[o].data != again[o].data)
            fail(fmt::format(": output {} has other bits when the same list is submitted again", o));
      }
      for (const std::string& trespass : run.trespasses()) fail(how + ": " + trespass);
      if (!pairs.empty() || variant.backend.empty() || variant.backend == "cpu") continue;
      // So long that its dispatches are cut into many; then, when it was measured, into fewer.
      Run cut(device, variant, call, choice, inputs, want, pairs, kSecondsToBeCut);
      for (int submit = 0; submit < 2; ++submit) {
        cut.submit();
        const std::vector<HostTensor> same = cut.outputs();
        for (std::size_t o = 0; o < want.size(); ++o)
          if (got[o].data != same[o].data)
            fail(fmt::format(": output {} has other bits when its dispatches are cut", o));
      }
      for (const std::string& trespass : cut.trespasses()) fail(", cut: " + trespass);
    } catch (const std::exception& error) {
      fail(how + ": " + error.what());
    }
  }
  return outcome;
}

void PrintTo(const VariantTarget& target, std::ostream* out) {
  *out << target.op << " " << target.variant << " on " << target.backend;
}

std::vector<VariantTarget> variant_targets() {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  hal::Registry registry;
  register_backends(registry, catalog);
  std::vector<VariantTarget> all;
  for (const std::string& backend : registry.backends()) {
    if (backend == "null") continue;  // sizes only: it computes nothing
    for (const kernels::Contract* contract : catalog.contracts()) {
      if (contract->view) continue;  // no kernel runs
      for (const kernels::Variant* variant : catalog.variants(contract->name, backend))
        all.push_back({contract->name, variant->name, backend});
    }
  }
  return all;
}

std::string profile_for(const hal::Device& device, hal::ProfileKind kind) {
  if (device.profile().kind == kind) return "";
  switch (kind) {
    case hal::ProfileKind::host:
      return "host-cpu";
    case hal::ProfileKind::gpu:
      return "rx7900xtx";
    case hal::ProfileKind::tpu:
      return "tpu-v5e";
    case hal::ProfileKind::trainium:
      return "trn2";
  }
  return "";
}

std::vector<std::int64_t> tile_sizes(const kernels::Catalog& catalog, const kernels::Variant& variant,
                                     const hal::DeviceInfo& device) {
  constexpr std::int64_t kMin = 3, kMax = 512;
  const kernels::Contract& contract = catalog.contract(variant.op);
  std::map<std::int64_t, int> counts;  // of the cases whose answer names the size
  int fitting = 0;
  for (const kernels::Case& test : contract.cases()) {
    const std::vector<kernels::TensorType> outputs = contract.infer(test.inputs, test.attrs);
    const kernels::Fit fit =
        variant.fit(kernels::CallView{variant.op, test.inputs, outputs, test.attrs}, device);
    if (!fit.ok) continue;
    ++fitting;
    std::set<std::int64_t> named;
    for (const auto& [name, value] : fit.params)
      if (value >= kMin && value <= kMax) named.insert(value);
    for (const std::int64_t value : named) ++counts[value];
  }
  std::set<std::int64_t> sizes;
  for (const auto& [size, count] : counts)
    if (count > 1 && 10 * count >= fitting) sizes.insert(size);  // else it is a size of the call
  const hal::Profile& profile = device.profile;
  for (const std::int64_t size : {std::int64_t{profile.lanes}, std::int64_t{profile.matrix_tile.m},
                                  std::int64_t{profile.matrix_tile.n}})
    if (size >= kMin && size <= kMax) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

RandomCall random_call(const kernels::Contract& contract, std::span<const std::int64_t> tiles, int round) {
  constexpr int kKinds = 256;
  const std::uint64_t seed = 1000 + static_cast<std::uint64_t>(round),
                      kind = 1000 + static_cast<std::uint64_t>(round % kKinds);
  return {contract.random_case({kernels::mix(kind, 77) >> 32 << 32 | kernels::mix(seed, 78) >> 32, tiles}),
          seed, kind};
}

std::vector<std::byte> first_output(hal::Device& device, const kernels::Variant& variant,
                                    const CaseCall& call, const std::vector<kernels::HostTensor>& inputs) {
  const kernels::Fit fit = variant.answer(call.view(), device.info());
  EXPECT_TRUE(fit.ok) << fit.reason;
  if (!fit.ok) return {};
  std::vector<std::unique_ptr<hal::Buffer>> buffers;
  std::vector<hal::Binding> in, out;
  const auto place = [&](std::int64_t bytes, hal::Access access) {
    buffers.push_back(device.allocate((bytes + 15) / 16 * 16, "bits"));
    return hal::Binding{buffers.back().get(), 0, bytes, access};
  };
  for (const kernels::HostTensor& input : inputs) {
    in.push_back(place(input.type.bytes(), hal::Access::read));
    device.write(*in.back().buffer, 0, input.data);
  }
  for (const kernels::TensorType& type : call.view().outputs)
    out.push_back(place(type.bytes(), hal::Access::write));
  hal::Binding workspace;
  if (fit.workspace_bytes > 0) workspace = place(fit.workspace_bytes, hal::Access::read_write);
  kernels::Choice choice;
  choice.variant = &variant;
  choice.params = fit.params;
  choice.workspace_bytes = fit.workspace_bytes;
  const auto commands = device.record("bits");
  variant.record({call.view(), choice, device, *commands, in, out, workspace, "bits"});
  commands->finish();
  device.submit(*commands);
  device.wait();
  kernels::HostTensor first(call.view().outputs[0]);
  device.read(*out[0].buffer, 0, first.data);
  return first.data;
}

bool slow_cases() {
  const char* text = std::getenv("MESHLOOM_SLOW_CASES");
  return text && std::string(text) == "1";
}

int fuzz_rounds(int otherwise) {
  const char* text = std::getenv("MESHLOOM_FUZZ_ROUNDS");
  return text ? std::max(0, std::atoi(text)) : otherwise;
}

int fuzz_from() {
  const char* text = std::getenv("MESHLOOM_FUZZ_FROM");
  return text ? std::max(0, std::atoi(text)) : 0;
}

}  // namespace meshloom::tests
