// Profiles describe hardware as plain data. A real device reports its own profile; any profile can be laid
// over any backend ("vulkan:0 as tpu-v5e").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hal/dtype.h"

namespace meshloom::hal {

// The kind of algorithm that suits the hardware.
enum class ProfileKind : std::uint8_t {
  host,      // a few cores with caches: cache-blocked loops
  gpu,       // many workgroups, a small shared memory each
  tpu,       // a few big cores, megabytes of scratchpad, 128x128 matrix unit
  trainium,  // 128 partitions, stationary x moving tiles accumulated in PSUM banks
};

std::string_view to_string(ProfileKind kind);
ProfileKind profile_kind_from_string(std::string_view name);  // throws Error

// The dimensions of the matrix unit; all 0 when there is none.
struct MatrixTile {
  std::int32_t m = 0, n = 0, k = 0;
};

struct Link {
  std::string name;             // "NVLink 4", "ICI", "PCIe 5 x16"
  double bytes_per_second = 0;  // per chip, one direction
};

struct Profile {
  std::string name;     // "tpu-v5e": the name in selectors
  std::string product;  // "Google TPU v5e"
  ProfileKind kind = ProfileKind::host;
  std::string isa;  // what its vendor's compilers call its instruction set: "sm_86", "dg2"; "" = not told
  std::int64_t memory_bytes = 0;       // device memory; enforced when a device runs as this profile
  double memory_bytes_per_second = 0;  // peak
  std::int32_t cores = 0;              // SMs, compute units, TensorCores, NeuronCores, CPU cores
  std::int64_t scratch_bytes = 0;      // software-managed memory per core: shared memory, VMEM, SBUF
  std::int64_t accumulator_bytes = 0;  // PSUM per core; 0 = none
  std::int32_t accumulator_banks = 0;  // PSUM banks per partition
  std::int32_t partitions = 0;         // SBUF partitions (Trainium); 0 elsewhere
  std::int32_t lanes = 0;              // width of a subgroup or of a vector unit, in f32 elements
  std::int32_t max_workgroup = 0;      // invocations
  MatrixTile matrix_tile;
  std::map<DType, double> peak_flops;  // dense FLOP/s per chip (int8: OP/s)
  std::vector<Link> links;
  std::map<std::string, std::string> sources;  // field -> source of the number

  // The peak for this dtype; 0 = unknown.
  double flops(DType dtype) const;
};

// The peak rate of products of `dtype`; that of f32 when the chip has no unit for `dtype` and operands are
// converted.
double peak_flops(const Profile& profile, DType dtype);

// Parses one profile file. Throws Error for a number without a source and for unknown fields; `where` names
// the file in errors.
Profile parse_profile(std::string_view json, const std::string& where);
std::string to_json(const Profile& profile);

// The shipped profiles of hal/profiles/, sorted by name.
const std::vector<Profile>& shipped_profiles();
// Throws Error that lists all names and suggests the nearest.
const Profile& find_profile(std::string_view name);

}  // namespace meshloom::hal
