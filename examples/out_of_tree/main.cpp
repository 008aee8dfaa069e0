// Multiplies two matrices on a device, with the kernel that the catalog prefers there, and holds the result to the reference
// in double precision:
//     check_matmul [--device ID] [--m N] [--n N] [--k N]
// Exits with 0 when every element is within the op's tolerance, 1 when one is not or something fails, 2 for wrong arguments.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "kernels/core/compare.h"
#include "kernels/core/rng.h"

namespace hal = meshloom::hal;
namespace kernels = meshloom::kernels;

namespace {

constexpr const char* kUsage = "usage: check_matmul [--device ID] [--m N] [--n N] [--k N]\n";

struct Options {
  std::string device = "cpu";
  std::int64_t m = 65, n = 33, k = 129;
};

[[noreturn]] void refuse(const std::string& problem) {
  std::fprintf(stderr, "check_matmul: %s\n%s", problem.c_str(), kUsage);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::printf("%s", kUsage);
      std::exit(0);
    }
    std::int64_t* size = name == "--m"   ? &options.m
                         : name == "--n" ? &options.n
                         : name == "--k" ? &options.k
                                         : nullptr;
    if (!size && name != "--device") refuse("unknown argument '" + name + "'");
    if (++i == argc) refuse(name + " needs a value");
    if (!size) {
      options.device = argv[i];
      continue;
    }
    char* end = nullptr;
    *size = std::strtoll(argv[i], &end, 10);
    if (*end != '\0' || *size < 1 || *size > 4096)
      refuse(name + " must be from 1 to 4096; found '" + argv[i] + "'");
  }
  return options;
}

// The first variant that fits and is not made for another kind of device; the reference fits everywhere.
kernels::Choice choose(const kernels::Catalog& catalog, const kernels::CallView& call,
                       const hal::DeviceInfo& device) {
  for (const kernels::Variant* variant : catalog.variants(call.op, device.backend)) {
    if (!variant->serves(device.profile.kind)) continue;
    const kernels::Fit fit = variant->answer(call, device);
    if (fit.ok) return {variant, fit.params, fit.workspace_bytes, 0};
  }
  throw meshloom::Error("matmul on " + device.id, "a variant must fit");
}

// A tensor in memory of the device.
struct OnDevice {
  OnDevice(hal::Device& device, std::int64_t bytes, const char* label, hal::Access access)
      : buffer(device.allocate(bytes, label)), binding{buffer.get(), 0, bytes, access} {}
  std::unique_ptr<hal::Buffer> buffer;
  hal::Binding binding;
};

int run(const Options& options) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  hal::Registry registry;
  meshloom::register_backends(registry, catalog);
  const std::unique_ptr<hal::Device> device = registry.open(options.device);

  // A call: the op, the types of its inputs and outputs, and its attributes.
  const kernels::Contract& matmul = catalog.contract("matmul");
  const std::vector<kernels::TensorType> inputs{{hal::DType::f32, {options.m, options.k}},
                                                {hal::DType::f32, {options.k, options.n}}};
  const kernels::Attrs attrs;
  const std::vector<kernels::TensorType> outputs = matmul.infer(inputs, attrs);
  const kernels::CallView call{"matmul", inputs, outputs, attrs};

  const std::vector<kernels::HostTensor> values = kernels::make_inputs(matmul, call, /*seed=*/1);
  OnDevice a(*device, inputs[0].bytes(), "a", hal::Access::read),
      b(*device, inputs[1].bytes(), "b", hal::Access::read),
      c(*device, outputs[0].bytes(), "c", hal::Access::write);
  device->write(*a.buffer, 0, values[0].data);
  device->write(*b.buffer, 0, values[1].data);

  const kernels::Choice choice = choose(catalog, call, device->info());
  std::unique_ptr<OnDevice> workspace;
  if (choice.workspace_bytes > 0)
    workspace =
        std::make_unique<OnDevice>(*device, choice.workspace_bytes, "workspace", hal::Access::read_write);
  const hal::Binding in[] = {a.binding, b.binding}, out[] = {c.binding};
  const std::unique_ptr<hal::CommandList> commands = device->record("matmul");
  choice.variant->record(
      {call, choice, *device, *commands, in, out, workspace ? workspace->binding : hal::Binding{}, "matmul"});
  commands->finish();
  device->submit(*commands);
  device->wait();

  kernels::HostTensor got(outputs[0]), want(outputs[0]);
  device->read(*c.buffer, 0, got.data);
#ifdef PLANT_A_FAULT  // shows that the comparison can fail
  reinterpret_cast<float*>(got.data.data())[0] += 1.0f;
#endif
  const kernels::ConstTensorView operands[] = {{inputs[0], values[0].data.data()},
                                               {inputs[1], values[1].data.data()}};
  kernels::TensorView results[] = {{outputs[0], want.data.data()}};
  kernels::run_reference(matmul, call, operands, results);
  const kernels::Comparison comparison =
      kernels::compare({outputs[0], want.data.data()}, {outputs[0], got.data.data()}, matmul.tolerance(call));
  std::printf(
      "(%lld, %lld) x (%lld, %lld) on %s by %s: the largest error is %.3f of what the contract allows\n",
      static_cast<long long>(options.m), static_cast<long long>(options.k), static_cast<long long>(options.k),
      static_cast<long long>(options.n), device->info().id.c_str(), choice.variant->name.c_str(),
      comparison.worst);
  if (!comparison.ok) std::fprintf(stderr, "check_matmul: %s\n", comparison.text.c_str());
  return comparison.ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check_matmul: %s\n", error.what());
    return 1;
  }
}
