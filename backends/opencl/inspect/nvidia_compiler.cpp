// Kernels of OpenCL C by clang as far as PTX, with the built-in functions of libclc, and from there by NVIDIA's assembler,
// which is the one of its driver. The driver's own compiler from OpenCL C to PTX is not to be had.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "backends/opencl/device/program.h"
#include "backends/opencl/device/ptx.h"
#include "backends/opencl/device/temporary_folder.h"
#include "backends/opencl/inspect/elf.h"
#include "backends/opencl/inspect/families.h"
#include "backends/opencl/inspect/ptxas_report.h"
#include "backends/opencl/inspect/run_program.h"
#include "backends/opencl/inspect/sass_listing.h"

namespace meshloom::backends::opencl {
namespace {

// FLOP per cycle from the peaks of the data sheets: GA102 71 TFLOP/s by 82 x 4 quarters at 1.7 GHz, GH100 989 by 132 x 4 at
// 1.83 GHz, which mma.sync does not reach; of bytes 284 and 1979.
constexpr std::array kMultiprocessors{Multiprocessor{"sm_86", 48, 16, 102400, 128, 512},
                                      Multiprocessor{"sm_90", 64, 32, 233472, 1024, 2048}};
constexpr const char* kBuiltIns = "nvptx64--nvidiacl.bc";
// The newest that clang 14 knows; ptxas takes PTX of older families for newer ones.
constexpr const char* kPtxFamily = "sm_86";

std::string built_ins() {
  const char* named = std::getenv("MESHLOOM_LIBCLC");
  for (const std::string& folder :
       {std::string(named ? named : ""), std::string("/usr/lib/clc"), std::string("/usr/share/clc")}) {
    std::error_code ignored;
    std::string file = folder + "/" + kBuiltIns;
    if (!folder.empty() && std::filesystem::is_regular_file(file, ignored))
      return std::filesystem::absolute(file).string();
  }
  return {};
}

// The driver's compiler tells the assembler the workgroup's size, which limits registers; clang does not.
std::string with_workgroup(std::string ptx, const std::array<std::uint32_t, 3>& workgroup) {
  const std::size_t entry = ptx.find(".entry ");
  const std::size_t body = entry == std::string::npos ? entry : ptx.find("\n{", entry);
  if (body == std::string::npos || ptx.find(".reqntid") != std::string::npos) return ptx;
  return ptx.insert(body, "\n.reqntid " + std::to_string(workgroup[0]) + ", " + std::to_string(workgroup[1]) +
                              ", " + std::to_string(workgroup[2]));
}

// The word behind "release ... V" or "version ".
std::string version_in(const std::string& text, const std::string& behind) {
  const std::size_t at = text.find(behind);
  if (at == std::string::npos) return "of an unknown version";
  const std::size_t begin = at + behind.size();
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

class NvidiaCompiler final : public OfflineCompiler {
 public:
  NvidiaCompiler(const Multiprocessor& sm, std::string clang, std::string ptxas, std::string library)
      : OfflineCompiler(std::string(sm.family)),
        sm_(sm),
        clang_(std::move(clang)),
        ptxas_(std::move(ptxas)),
        nvdisasm_(find_program("nvdisasm")),
        library_(std::move(library)) {
    version_ = "clang " + version_in(run_program(clang_, {"--version"}, "/").output, "version ") +
               ", ptxas " + version_in(run_program(ptxas_, {"--version"}, "/").output, ", V");
  }

  std::string version() const override { return version_; }

  hal::Inspection compile(const hal::ExecutableSpec& spec, const std::string& source) const override {
    const TemporaryFolder folder("meshloom-inspect");
    folder.write("kernel.cl", source);
    std::vector<std::string> arguments = build_options();
    for (const std::string& one :
         {std::string("-target"), std::string("nvptx64-unknown-nvidiacl"),
          std::string("-march=") + kPtxFamily, std::string("-O2"), std::string("-fgnu-keywords"),
          std::string("-Xclang"), std::string("-finclude-default-header"), std::string("-Xclang"),
          std::string("-target-feature"), std::string("-Xclang"), std::string("+ptx75"),
          std::string("-Xclang"), std::string("-mlink-builtin-bitcode"), std::string("-Xclang"), library_,
          std::string("-S"), std::string("kernel.cl"), std::string("-o"), std::string("kernel.ptx")})
      arguments.push_back(one);
    run(spec, clang_, arguments, folder);
    std::string family(sm_.family), ptx = with_workgroup(folder.read("kernel.ptx"), spec.workgroup);
    if (auto own = ptx_for_sm_90a(ptx)) {
      ptx = std::move(*own);
      family = "sm_90a";
    }
    if (const int groups = min_workgroups(spec)) ptx = ptx_with_min_workgroups(ptx, groups).value_or(ptx);
    folder.write("kernel.ptx", ptx);
    const std::string report =
        run(spec, ptxas_, {"-v", "-arch=" + family, "kernel.ptx", "-o", "kernel.cubin"}, folder);
    hal::Inspection found;
    found.subgroup = 32;
    read_ptxas_report(report, found);
    if (found.registers) {
      found.waves =
          warps_of(sm_, *found.registers, found.local_bytes.value_or(0), hal::invocations(spec.workgroup));
    }
    const std::string cubin = folder.read("kernel.cubin");
    for (const ElfSection& section : elf_sections(cubin))
      if (section.name == ".text." + spec.kernel)
        found.code_bytes = static_cast<std::int64_t>(section.bytes.size());
    found.files.push_back({".ptx", folder.read("kernel.ptx")});
    read_assembly(spec, folder, found);
    return found;
  }

 private:
  static std::vector<std::string> build_options() {
    std::vector<std::string> words;
    const std::string all = kBuildOptions;
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t end = std::min(all.find(' ', begin), all.size());
      words.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
    return words;
  }

  std::string run(const hal::ExecutableSpec& spec, const std::string& program,
                  const std::vector<std::string>& arguments, const TemporaryFolder& folder) const {
    ProgramResult ran = run_program(program, arguments, folder.path());
    if (ran.code != 0) refuse(spec, ran.output);
    return std::move(ran.output);
  }

  void read_assembly(const hal::ExecutableSpec& spec, const TemporaryFolder& folder,
                     hal::Inspection& found) const {
    if (nvdisasm_.empty()) {
      found.why_no_loops = "there is no nvdisasm in PATH (PyPI's nvidia-cuda-nvdisasm)";
      return;
    }
    found.files.push_back({".asm", run(spec, nvdisasm_, {"-c", "-hex", "kernel.cubin"}, folder)});
    try {
      found.loops = sass::inspect_loops(
          sass::parse_listing(found.files.back().bytes, sm_.flops_per_cycle, sm_.int8_per_cycle));
    } catch (const hal::Error& error) {
      found.why_no_loops = error.what();
    }
  }

  const Multiprocessor& sm_;
  std::string clang_, ptxas_, nvdisasm_, library_, version_;
};

}  // namespace

std::vector<std::string> nvidia_families() {
  std::vector<std::string> names;
  for (const Multiprocessor& sm : kMultiprocessors) names.emplace_back(sm.family);
  return names;
}

std::unique_ptr<OfflineCompiler> nvidia_compiler(const std::string& family) {
  const auto sm = std::find_if(kMultiprocessors.begin(), kMultiprocessors.end(),
                               [&](const Multiprocessor& one) { return one.family == family; });
  const auto missing = [&](const std::string& what, const std::string& package) {
    throw hal::Error("opencl:" + family,
                     "needs " + what + ": install " + package + ", or let scripts/inspect-gpu unpack it",
                     "none");
  };
  std::string clang = find_program("clang"), ptxas = find_program("ptxas"), library = built_ins();
  if (clang.empty()) missing("clang in PATH", "clang");
  if (ptxas.empty()) missing("NVIDIA's ptxas in PATH", "PyPI's nvidia-cuda-nvcc");
  if (library.empty())
    missing(std::string("libclc's ") + kBuiltIns + " in /usr/lib/clc or MESHLOOM_LIBCLC", "libclc-14");
  return std::make_unique<NvidiaCompiler>(*sm, std::move(clang), std::move(ptxas), std::move(library));
}

}  // namespace meshloom::backends::opencl
