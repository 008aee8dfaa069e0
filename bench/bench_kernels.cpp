// Times every variant of every op on every device found, over the op's own case list. All timings are taken
// on a warm kernel, submit to wait; GFLOP/s and GB/s follow from the contract's counts. Choose with
// --benchmark_filter:
//   bench_kernels --benchmark_filter='matmul/cpu/.*/gpt2.*'
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/catalog.h"

namespace meshloom {
namespace {

// A case laid out in device memory with its commands recorded.
class Run {
 public:
  Run(hal::Device& device, const kernels::Contract& contract, const kernels::Case& item,
      const kernels::Variant& variant, const kernels::Fit& fit)
      : device_(device), inputs_(item.inputs), outputs_(contract.infer(item.inputs, item.attrs)) {
    const kernels::CallView call{contract.name, inputs_, outputs_, item.attrs};
    std::vector<hal::Binding> in, out;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      kernels::HostTensor host(inputs_[i]);
      const kernels::TensorView view{inputs_[i], host.data.data()};
      if (contract.make_input)
        contract.make_input(call, static_cast<int>(i), 1, view);
      else
        fill(view);
      in.push_back(allocate(inputs_[i].bytes(), hal::Access::read));
      device_.write(*in.back().buffer, 0, host.data);
    }
    for (const kernels::TensorType& type : outputs_)
      out.push_back(allocate(type.bytes(), hal::Access::write));
    hal::Binding workspace;
    if (fit.workspace_bytes > 0) workspace = allocate(fit.workspace_bytes, hal::Access::read_write);
    choice_ = {&variant, fit.params, fit.workspace_bytes, 0};
    list_ = device_.record(contract.name);
    variant.encode({call, choice_, device_, *list_, in, out, workspace, contract.name});
    list_->finish();
    submit();  // warm: drivers compile at the first dispatch
  }

  void submit() {
    device_.submit(*list_);
    device_.wait();
  }

 private:
  static void fill(const kernels::TensorView& view) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> value(-1, 1);
    if (view.type.dtype != hal::DType::f32) return;
    for (std::int64_t i = 0; i < view.type.elements(); ++i) view.as<float>()[i] = value(random);
  }
  hal::Binding allocate(std::int64_t bytes, hal::Access access) {
    buffers_.push_back(device_.allocate(bytes, "bench"));
    return {buffers_.back().get(), 0, bytes, access};
  }

  hal::Device& device_;
  std::vector<kernels::TensorType> inputs_, outputs_;
  kernels::Choice choice_;
  std::vector<std::unique_ptr<hal::Buffer>> buffers_;
  std::unique_ptr<hal::CommandList> list_;
};

void time_case(benchmark::State& state, hal::Device& device, const kernels::Contract& contract,
               const kernels::Case& item, const kernels::Variant& variant) {
  const auto outputs = contract.infer(item.inputs, item.attrs);
  const kernels::CallView call{contract.name, item.inputs, outputs, item.attrs};
  const kernels::Fit fit = variant.fit(call, device.info());
  if (!fit.ok) return state.SkipWithError(fit.reason.c_str());
  Run run(device, contract, item, variant, fit);
  for (auto _ : state) run.submit();
  state.counters["GFLOP/s"] =
      benchmark::Counter(contract.flops(call) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      benchmark::Counter(contract.bytes(call) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace meshloom

int main(int argc, char** argv) {
  using namespace meshloom;
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  hal::Registry registry;
  register_backends(registry, catalog);
  std::vector<std::unique_ptr<hal::Device>> devices;
  for (const hal::Listing& listing : registry.list()) {
    if (listing.backend == "null" || listing.devices.empty()) continue;
    devices.push_back(registry.open(listing.backend));
  }
  for (const auto& device : devices)
    for (const kernels::Contract* contract : catalog.contracts())
      for (const kernels::Variant* variant : catalog.variants(contract->name, device->info().backend)) {
        if (variant->name == "reference" || contract->view) continue;
        for (const kernels::Case& item : contract->cases())
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", contract->name, device->info().backend, variant->name, item.name)
                  .c_str(),
              [&device = *device, contract, variant, item](benchmark::State& state) {
                time_case(state, device, *contract, item, *variant);
              })
              ->Unit(benchmark::kMicrosecond)
              ->UseRealTime();
      }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
