// Kernels of OpenCL C by ocloc, which is the offline form of the compiler in Intel's driver.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "backends/opencl/device/program.h"
#include "backends/opencl/device/temporary_folder.h"
#include "backends/opencl/inspect/elf.h"
#include "backends/opencl/inspect/families.h"
#include "backends/opencl/inspect/run_program.h"
#include "backends/opencl/inspect/xe_listing.h"
#include "backends/opencl/inspect/ze_info.h"
#include "backends/simt/inspect/listing.h"

namespace meshloom::backends::opencl {
namespace {

// Source: Intel oneAPI GPU Optimization Guide and GPU Occupancy Calculator, Xe-HPG and Xe2.
struct Xe {
  std::string_view family, ocloc;
  int native;                   // f32 lanes of a vector engine
  std::int64_t register_bytes;  // of one register
  std::int64_t engines, local;  // of a Xe core; the bytes are the least that a core has
};
constexpr std::array kXe{Xe{"dg2", "dg2-g10", 8, 32, 16, 131072}, Xe{"bmg", "bmg-g21", 16, 64, 8, 131072}};
constexpr std::int64_t kThreads = 8;  // of a vector engine, with 128 registers each; half as many with 256

// The threads of a kernel that a vector engine holds at a time.
double waves_of(const Xe& xe, const hal::Inspection& found, const hal::ExecutableSpec& spec) {
  const std::int64_t of_group = (hal::invocations(spec.workgroup) + found.subgroup - 1) / found.subgroup;
  const std::int64_t threads = *found.registers > 128 ? kThreads / 2 : kThreads;
  std::int64_t groups = threads * xe.engines / std::max<std::int64_t>(of_group, 1);
  if (*found.local_bytes > 0) groups = std::min(groups, xe.local / *found.local_bytes);
  groups = std::max<std::int64_t>(groups, 1);
  return std::min(static_cast<double>(threads),
                  static_cast<double>(groups * of_group) / static_cast<double>(xe.engines));
}

class IntelCompiler final : public OfflineCompiler {
 public:
  IntelCompiler(const Xe& xe, std::string ocloc)
      : OfflineCompiler(std::string(xe.family)), xe_(xe), ocloc_(std::move(ocloc)) {
    const TemporaryFolder folder("meshloom-inspect");
    run_program(ocloc_, {"query", "OCL_DRIVER_VERSION"}, folder.path());
    std::string version = folder.read("OCL_DRIVER_VERSION");
    version = version.substr(0, version.find('\0'));
    version_ = "ocloc " + std::string(simt::isa::stripped(version));
  }

  std::string version() const override { return version_; }

  hal::Inspection compile(const hal::ExecutableSpec& spec, const std::string& source) const override {
    const TemporaryFolder folder("meshloom-inspect");
    folder.write("kernel.cl", source);
    const ProgramResult ran = run_program(
        ocloc_,
        {"compile", "-file", "kernel.cl", "-device", std::string(xe_.ocloc), "--format", "zebin", "-options",
         intel_build_options(spec), "-out_dir", folder.path()},
        folder.path(),
        {"IGC_ShaderDumpEnable=1", "IGC_ShaderDumpPidDisable=1", "IGC_DumpToCustomDir=" + folder.path()});
    const std::vector<std::string> binaries = folder.names(".bin");
    if (ran.code != 0 || binaries.empty()) refuse(spec, ran.output);
    hal::Inspection found;
    const std::string binary = folder.read(binaries.front());
    for (const ElfSection& section : elf_sections(binary)) {
      if (section.name == ".ze_info") read_ze_info(section.bytes, found);
      if (section.name == ".text." + spec.kernel)
        found.code_bytes = static_cast<std::int64_t>(section.bytes.size());
    }
    if (!found.registers)
      throw hal::Error(where(spec), "the binary must say its registers", "none in .ze_info");
    found.waves = waves_of(xe_, found, spec);
    read_assembly(folder, found);
    return found;
  }

 private:
  // The compiler tries several widths; what it took is in .ze_info.
  void read_assembly(const TemporaryFolder& folder, hal::Inspection& found) const {
    const std::string width = "_simd" + std::to_string(found.subgroup) + "_";
    std::string name;
    for (const std::string& one : folder.names(".asm"))
      if (one.find(width) != std::string::npos) name = one;
    if (name.empty()) {
      found.why_no_loops = version_ + " dumps no assembly of SIMD" + std::to_string(found.subgroup);
      return;
    }
    found.files.push_back({".asm", folder.read(name)});
    try {
      const xe::Listing listing = xe::parse_listing(found.files.back().bytes, xe_.native);
      found.spilled = listing.spill_size.value_or(0) / xe_.register_bytes;
      found.loops = xe::inspect_loops(listing);
    } catch (const hal::Error& error) {
      found.why_no_loops = error.what();
    }
  }

  const Xe& xe_;
  std::string ocloc_, version_;
};

}  // namespace

std::vector<std::string> intel_families() {
  std::vector<std::string> names;
  for (const Xe& xe : kXe) names.emplace_back(xe.family);
  return names;
}

std::unique_ptr<OfflineCompiler> intel_compiler(const std::string& family) {
  const auto xe = std::find_if(kXe.begin(), kXe.end(), [&](const Xe& one) { return one.family == family; });
  std::string ocloc = find_program("ocloc");
  if (ocloc.empty())
    throw hal::Error(
        "opencl:" + family,
        "needs Intel's ocloc in PATH: install intel-opencl-icd (Debian 12) or intel-ocloc (later), or let "
        "scripts/inspect-gpu unpack it",
        "no such program");
  return std::make_unique<IntelCompiler>(*xe, std::move(ocloc));
}

}  // namespace meshloom::backends::opencl
