#include "backends/opencl/device/program.h"

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "backends/opencl/device/ptx.h"
#include "backends/opencl/device/status.h"
#include "backends/simt/dialect/loader.h"
#include "embedded_opencl_kernels.h"
#include "hal/inspection.h"

namespace meshloom::backends::opencl {
namespace {

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  // The first lines name the cause; an error message is one line.
  constexpr std::size_t kMaxLength = 600;
  std::string out;
  for (char c : log) {
    if (c == '\0' || out.size() >= kMaxLength) break;
    if (c == '\n')
      out += " | ";
    else
      out += c;
  }
  return out;
}

std::vector<std::byte> binary_of(cl_program program) {
  std::size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS)
    return {};
  std::vector<std::byte> binary(size);
  auto* at = reinterpret_cast<unsigned char*>(binary.data());
  if (size == 0 || clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof at, &at, nullptr) != CL_SUCCESS)
    return {};
  return binary;
}

// An empty program where the driver rejects the binary.
Program from_binary(const Compiler& compiler, const std::string& options, std::span<const std::byte> binary) {
  const std::size_t size = binary.size();
  const auto* at = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int status = CL_SUCCESS, accepted = CL_SUCCESS;
  Program program{
      clCreateProgramWithBinary(compiler.context, 1, &compiler.device, &size, &at, &accepted, &status)};
  if (status != CL_SUCCESS || accepted != CL_SUCCESS) return {};
  if (clBuildProgram(program.get(), 1, &compiler.device, options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return {};
  return program;
}

std::size_t arguments_of(const hal::ExecutableSpec& spec) {
  return 2 * spec.bindings.size() + spec.constant_words + 2;  // and the grid (prelude_grid.inc)
}

bool holds(const Program& program, const hal::ExecutableSpec& spec) {
  cl_int status = CL_SUCCESS;
  const Kernel kernel{clCreateKernel(program.get(), spec.kernel.c_str(), &status)};
  cl_uint arguments = 0;
  return status == CL_SUCCESS &&
         clGetKernelInfo(kernel.get(), CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, nullptr) ==
             CL_SUCCESS &&
         arguments == arguments_of(spec);
}

}  // namespace

std::string kernel_source(const hal::ExecutableSpec& spec) {
  return simt::source_of(spec, simt::Language::opencl_c, embedded::opencl_kernels());
}

std::string intel_build_options(const hal::ExecutableSpec& spec) {
  for (const hal::Define& define : spec.defines)
    if (define.name == "MOST_REGISTERS") return std::string(kBuildOptions) + " -cl-intel-256-GRF-per-thread";
  return kBuildOptions;
}

std::string Compiler::build_options(const hal::ExecutableSpec& spec) const {
  // The platform's name, because other drivers for Intel's GPUs refuse options that they do not know.
  const bool intel = info.driver.starts_with("Intel(R) OpenCL") && !info.is_cpu;
  const std::string options = intel ? intel_build_options(spec) : kBuildOptions;
  const char* further = std::getenv("MESHLOOM_OPENCL_OPTIONS");
  return further && *further ? options + " " + further : options;
}

std::string Compiler::cache_key(const hal::ExecutableSpec& spec) const {
  return "opencl\n" + info.name + "\n" + info.vendor + "\n" + info.driver + "\n" + info.api + "\n" +
         build_options(spec) + "\n" + kernel_source(spec);
}

Kernel ClExecutable::kernel(const std::string& where) const {
  cl_int status = CL_SUCCESS;
  Kernel kernel{clCreateKernel(program_.get(), spec().kernel.c_str(), &status)};
  check(status, where, "clCreateKernel");
  return kernel;
}

std::shared_ptr<ClExecutable> Compiler::compile(const hal::ExecutableSpec& spec) const {
  const std::string where = info.id + ", kernel '" + spec.kernel + "'";
  const std::string key = cache_key(spec), options = build_options(spec);
  Program program;
  if (const auto binary = cache.load("clbin", key)) program = from_binary(*this, options, *binary);
  if (!program.get() || !holds(program, spec)) {
    const std::string source = kernel_source(spec);
    const char* text = source.c_str();
    const std::size_t length = source.size();
    cl_int status = CL_SUCCESS;
    program = Program{clCreateProgramWithSource(context, 1, &text, &length, &status)};
    check(status, where, "clCreateProgramWithSource");
    status = clBuildProgram(program.get(), 1, &device, options.c_str(), nullptr, nullptr);
    if (status != CL_SUCCESS)
      throw hal::Error(where, "must compile on " + info.name + " as '" + spec.key() + "'",
                       status_name(status) + ": " + build_log(program.get(), device));
    std::vector<std::byte> binary = binary_of(program.get());
    const std::string_view built(reinterpret_cast<const char*>(binary.data()), binary.size());
    std::optional<std::string> ptx = ptx_for_sm_90a(built);
    const bool for_sm_90a = ptx.has_value();
    if (const int groups = min_workgroups(spec))
      if (auto limited = ptx_with_min_workgroups(for_sm_90a ? *ptx : built, groups)) ptx = std::move(limited);
    // Without a bound on its registers a kernel runs too.
    if (ptx) {
      const auto* begin = reinterpret_cast<const std::byte*>(ptx->data());
      std::vector<std::byte> changed(begin, begin + ptx->size());
      if (Program other = from_binary(*this, options, changed); other.get()) {
        program = std::move(other);
        binary = std::move(changed);
      } else if (for_sm_90a) {
        throw hal::Error(where,
                         "must compile on " + info.name + " as '" + spec.key() + "', by PTX for sm_90a",
                         "the driver refused it");
      }
    }
    cache.store("clbin", key, binary);
  }
  auto executable = std::make_shared<ClExecutable>(spec, std::move(program));

  const Kernel kernel = executable->kernel(where);
  cl_uint arguments = 0;
  check(clGetKernelInfo(kernel.get(), CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, nullptr), where,
        "clGetKernelInfo");
  const std::size_t wanted = arguments_of(spec);
  if (arguments != wanted)
    throw hal::Error(where,
                     "takes a pointer and an offset per binding, its constants and the grid, " +
                         std::to_string(wanted) + " arguments by its spec",
                     std::to_string(arguments));
  // Not CL_KERNEL_WORK_GROUP_SIZE: kernels are compiled for their workgroup's size, and NVIDIA's driver runs some with more than it says.
  const std::int64_t size = hal::invocations(spec.workgroup);
  if (size > info.limits.max_workgroup)
    throw hal::Error(
        where,
        "runs in workgroups of at most " + std::to_string(info.limits.max_workgroup) + " on " + info.name,
        std::to_string(size));
  return executable;
}

}  // namespace meshloom::backends::opencl
