#include "bench/measure/subject.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "hal/error.h"
#include "kernels/core/rng.h"

namespace meshloom::bench {
namespace {

using kernels::HostTensor;

class DeviceSubject final : public Subject {
 public:
  DeviceSubject(hal::Device& device, const Workload& workload, const kernels::Choice& choice,
                const std::vector<HostTensor>& inputs, int sets)
      : device_(device), workload_(workload), choice_(choice) {
    for (int s = 0; s < sets; ++s) {
      Set& set = sets_.emplace_back();
      for (const HostTensor& input : inputs) set.inputs.push_back(place(input, hal::Access::read));
      for (const kernels::TensorType& type : workload.outputs) {
        HostTensor blank(type);
        poison(blank);
        set.outputs.push_back(place(blank, hal::Access::write));
      }
    }
    if (choice.workspace_bytes > 0) workspace_ = allocate(choice.workspace_bytes, hal::Access::read_write);
  }

  void prepare(int calls) override {
    list_.reset();
    std::unique_ptr<hal::CommandList> list = device_.record(workload_.contract->name);
    for (int i = 0; i < calls; ++i) {
      // Calls must not overlap, because they would share caches and cores.
      if (i > 0) list->barrier();
      const Set& set = sets_[static_cast<std::size_t>(i) % sets_.size()];
      choice_.variant->record({workload_.view(), choice_, device_, *list, set.inputs, set.outputs, workspace_,
                               workload_.contract->name});
    }
    list->finish();
    list_ = std::move(list);
  }

  void run() override {
    device_.submit(*list_);
    device_.wait();
  }

  int sets() const override { return static_cast<int>(sets_.size()); }
  bool is_gpu() const override { return !device_.info().is_cpu; }

  std::vector<HostTensor> outputs(int set) override {
    std::vector<HostTensor> result;
    const Set& from = sets_.at(static_cast<std::size_t>(set));
    for (std::size_t o = 0; o < workload_.outputs.size(); ++o) {
      HostTensor& tensor = result.emplace_back(workload_.outputs[o]);
      device_.read(*from.outputs[o].buffer, 0, tensor.data);
    }
    return result;
  }

 private:
  struct Set {
    std::vector<hal::Binding> inputs, outputs;
  };

  hal::Binding allocate(std::int64_t bytes, hal::Access access) {
    buffers_.push_back(device_.allocate(std::max<std::int64_t>((bytes + 3) / 4 * 4, 4),
                                        "bench " + workload_.contract->name));
    return {buffers_.back().get(), 0, bytes, access};
  }
  hal::Binding place(const HostTensor& tensor, hal::Access access) {
    const hal::Binding binding = allocate(tensor.type.bytes(), access);
    if (!tensor.data.empty()) device_.write(*binding.buffer, 0, tensor.data);
    return binding;
  }

  hal::Device& device_;
  const Workload& workload_;
  kernels::Choice choice_;
  std::vector<std::unique_ptr<hal::Buffer>> buffers_;
  std::vector<Set> sets_;
  hal::Binding workspace_;
  std::unique_ptr<hal::CommandList> list_;  // declared after the buffers, so that it is destroyed before them
};

}  // namespace

std::string_view to_string(Buffers buffers) {
  switch (buffers) {
    case Buffers::warm:
      return "warm";
    case Buffers::rotating:
      return "rotating";
    case Buffers::cold:
      return "cold";
  }
  return "?";
}

void poison(HostTensor& tensor) {
  if (tensor.type.dtype == hal::DType::f32)
    std::fill_n(tensor.as<float>(), tensor.type.elements(), std::numeric_limits<float>::quiet_NaN());
  else
    std::memset(tensor.data.data(), hal::is_float(tensor.type.dtype) ? 0xff : 0xa5,
                tensor.data.size());  // 0xffff is a NaN
}

std::unique_ptr<Subject> device_subject(hal::Device& device, const Workload& workload,
                                        const kernels::Choice& choice, const std::vector<HostTensor>& inputs,
                                        int sets) {
  return std::make_unique<DeviceSubject>(device, workload, choice, inputs, sets);
}

std::vector<HostTensor> make_inputs(hal::Device& device, const kernels::Catalog& catalog,
                                    const Workload& workload, std::uint64_t seed) {
  constexpr double kReferenceFlops = 2e8;  // more would take the reference too long
  const kernels::CallView call = workload.view();
  const kernels::Contract& contract = *workload.contract;
  const bool backward =
      contract.name == "flash_attention_grad" || contract.name == "flash_attention_bias_grad";
  if (!backward || contract.flops(call) < kReferenceFlops) return kernels::make_inputs(contract, call, seed);
  // The forward op has the inputs of the gradient, without o, lse and do.
  std::vector<HostTensor> given;
  kernels::Case item{"", {}, workload.attrs};
  for (std::size_t i = 0; i < workload.inputs.size(); ++i) {
    if (i >= 3 && i < 6) continue;
    item.inputs.push_back(workload.inputs[i]);
    given.push_back(kernels::make_input(contract, call, static_cast<int>(i), seed));
  }
  const Workload forward = make_workload(catalog.contract("flash_attention"), item);
  const auto subject = device_subject(device, forward, selected(catalog, device.info(), forward), given, 1);
  subject->prepare(1);
  subject->run();
  std::vector<HostTensor> inputs(std::make_move_iterator(given.begin()),
                                 std::make_move_iterator(given.begin() + 3));
  for (HostTensor& output : subject->outputs(0)) inputs.push_back(std::move(output));
  inputs.push_back(kernels::make_input(contract, call, 5, seed));
  std::move(given.begin() + 3, given.end(), std::back_inserter(inputs));
  return inputs;
}

std::int64_t set_bytes(const Workload& workload, std::int64_t workspace) {
  std::int64_t sum = workspace;
  for (const auto* types : {&workload.inputs, &workload.outputs})
    for (const kernels::TensorType& type : *types) sum += type.bytes();
  return std::max<std::int64_t>(sum, 4);
}

int rotating_sets(std::int64_t set_bytes, std::int64_t cache_bytes, std::int64_t memory_bytes) {
  const std::int64_t wanted = std::clamp<std::int64_t>(2 * cache_bytes / set_bytes + 1, 2, 64);
  if (memory_bytes <= 0) return static_cast<int>(wanted);
  return static_cast<int>(std::clamp<std::int64_t>(memory_bytes / 4 / set_bytes, 1, wanted));
}

}  // namespace meshloom::bench
