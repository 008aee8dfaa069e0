// What a driver's compiler made of a kernel, for people who write kernels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hal/device.h"

namespace meshloom::hal {

// Of a workgroup.
inline std::int64_t invocations(const std::array<std::uint32_t, 3>& workgroup) {
  return std::int64_t{1} * workgroup[0] * workgroup[1] * workgroup[2];
}

// Of a dispatch of so many workgroups.
inline double invocations(const std::array<std::uint32_t, 3>& workgroup,
                          const std::array<std::uint32_t, 3>& groups) {
  return static_cast<double>(invocations(workgroup)) * groups[0] * groups[1] * groups[2];
}

// A number of the driver, in its own words.
struct DriverStatistic {
  std::string name, about;
  double value = 0;
};

// One iteration of a loop of a listing, with the loops inside it as often as their trip counts say. Cycles are those of one SIMD for one wave
// (docs/inspecting-kernels.md has the model).
struct LoopInspection {
  std::string label;  // of its first block in the listing
  int depth = 0;      // 0 = in no other loop
  bool innermost = false;
  bool main = false;     // the one in which most is multiplied, with the copies around the products
  bool product = false;  // the innermost loop in which most of that is done; may be the main one
  bool guessed = false;  // the trip count of a loop inside it is not in the code: it counts once
  std::int64_t instructions = 0;
  double issue_cycles = 0;     // in which vector instructions issue
  double multiply_cycles = 0;  // of these, FMAs, dot products and matrix products
  // Of the local memory, at the SIMD's share of its full rate; no value where the model has no rate for it.
  std::optional<double> local_cycles;
  // The number of loads by bytes per invocation.
  std::map<int, std::int64_t> device_loads, local_loads;
  std::int64_t scratch_accesses = 0;
  // For loads from device memory; of these, with no multiplication between the load and the wait. No value where the listing
  // does not tell.
  std::optional<std::int64_t> waits, exposed_waits;

  double multiply_share() const { return issue_cycles > 0 ? multiply_cycles / issue_cycles : 0; }
  // The largest share of multiplying cycles that the local memory allows, where that is known.
  std::optional<double> local_bound() const {
    if (!local_cycles) return std::nullopt;
    return multiply_cycles >= *local_cycles || *local_cycles == 0 ? 1 : multiply_cycles / *local_cycles;
  }
};

// A text or a binary that the compiler read or wrote.
struct InspectedFile {
  std::string suffix;  // ".glsl", ".spv", ".asm"
  std::string bytes;
};

struct Inspection {
  std::int32_t subgroup = 0;  // invocations
  // What the driver says; no value where it does not.
  std::optional<std::int64_t> registers;      // vector registers per invocation
  std::optional<std::int64_t> spilled;        // of these, in memory
  std::optional<std::int64_t> scratch_bytes;  // private memory per invocation
  std::optional<std::int64_t> local_bytes;    // of a workgroup
  std::optional<std::int64_t> code_bytes;
  std::optional<double> waves;              // of this kernel that one SIMD holds at a time (occupancy)
  std::vector<DriverStatistic> statistics;  // all of them
  std::vector<LoopInspection> loops;        // in the order of the listing
  std::string why_no_loops;                 // set where the listing cannot be read
  std::vector<InspectedFile> files;

  // nullptr where there are no loops.
  const LoopInspection* main_loop() const { return first(&LoopInspection::main); }
  const LoopInspection* product_loop() const { return first(&LoopInspection::product); }

 private:
  const LoopInspection* first(bool LoopInspection::*flag) const {
    for (const LoopInspection& loop : loops)
      if (loop.*flag) return &loop;
    return nullptr;
  }
};

// A compute shader that need not be the project's, as its own program would hand it to the driver.
struct ShaderModule {
  std::string name;
  std::vector<std::uint32_t> spirv;
  std::map<std::uint32_t, std::uint32_t> constants;  // specialization constants, by id
  std::uint32_t subgroup = 0;                        // required invocations; 0 = the driver's choice
};
struct InspectedShader {
  std::array<std::uint32_t, 3> workgroup{};  // invocations, as the shader says
  Inspection found;
};

// A device that was opened by Registry::open_to_inspect and takes shaders of others.
class ShaderInspector {
 public:
  virtual ~ShaderInspector() = default;
  // Throws Error with the shader's name when it is no compute shader in SPIR-V or the driver refuses it. What is wrong inside
  // of its functions is for the driver to find, which trusts it.
  virtual InspectedShader inspect_shader(const ShaderModule& shader) = 0;
};

// An executable of a device that was opened by Registry::open_to_inspect.
class InspectableExecutable {
 public:
  virtual ~InspectableExecutable() = default;
  // Of the code that a dispatch with these bindings runs. Throws Error where the driver does not answer.
  virtual Inspection inspect(std::span<const Binding> bindings) const = 0;
};

}  // namespace meshloom::hal
