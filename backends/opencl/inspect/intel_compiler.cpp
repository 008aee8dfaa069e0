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
#include "backends/simt/inspect/xe_model.h"

namespace meshloom::backends::opencl {
namespace {

using simt::isa::Xe;

// A family, and the compiler's name of its largest GPU.
struct Target {
  std::string_view family, ocloc;
};
constexpr std::array kTargets{Target{"dg2", "dg2-g10"}, Target{"bmg", "bmg-g21"}};

class IntelCompiler final : public OfflineCompiler {
 public:
  IntelCompiler(const Target& target, std::string ocloc)
      : OfflineCompiler(std::string(target.family)),
        target_(target),
        xe_(*simt::isa::xe_of(target.family)),
        ocloc_(std::move(ocloc)) {
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
        {"compile", "-file", "kernel.cl", "-device", std::string(target_.ocloc), "--format", "zebin",
         "-options", intel_build_options(spec), "-out_dir", folder.path()},
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
    found.waves = simt::isa::xe_waves_of(xe_, *found.registers, found.local_bytes.value_or(0),
                                         hal::invocations(spec.workgroup), found.subgroup);
    read_assembly(folder, found);
    return found;
  }

 private:
  // The compiler tries several widths; what it took is in .ze_info.
  void read_assembly(const TemporaryFolder& folder, hal::Inspection& found) const {
    const std::string width = "_simd" + std::to_string(found.subgroup) + "_";
    std::string name;
    for (const std::string& one : folder.names(".asm"))
      if (one.find(width) != std::string::npos && one.find("Symbol_Table") == std::string::npos) name = one;
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

  const Target& target_;
  const Xe& xe_;
  std::string ocloc_, version_;
};

}  // namespace

std::vector<std::string> intel_families() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) names.emplace_back(target.family);
  return names;
}

std::unique_ptr<OfflineCompiler> intel_compiler(const std::string& family) {
  const auto target =
      std::find_if(kTargets.begin(), kTargets.end(), [&](const Target& one) { return one.family == family; });
  std::string ocloc = find_program("ocloc");
  if (ocloc.empty())
    throw hal::Error(
        "opencl:" + family,
        "needs Intel's ocloc in PATH: install intel-opencl-icd (Debian 12) or intel-ocloc (later), or let "
        "scripts/inspect-gpu unpack it",
        "no such program");
  return std::make_unique<IntelCompiler>(*target, std::move(ocloc));
}

}  // namespace meshloom::backends::opencl
