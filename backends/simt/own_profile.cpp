#include "backends/simt/own_profile.h"

#include <algorithm>
#include <cctype>

#include "backends/simt/kernels/matmul/matrix_tile.h"

namespace meshloom::backends::simt {
namespace {

// Lower case without "(R)" and "(TM)"; everything but letters and digits becomes `gap`, once ('\0' =
// nothing).
std::string slug(std::string text, char gap) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string mark : {"(r)", "(tm)"})
    for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, mark.size());
  std::string out;
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += c;
    else if (gap && !out.empty() && out.back() != gap)
      out += gap;
  }
  while (gap && !out.empty() && out.back() == gap) out.pop_back();
  return out;
}

// Whether the words of a device's name, each between two '-', are those of a model: "-nvidia-rtx-3060-" has "rtx3060", and
// "-nvidia-rtx-3060-ti-" is another product.
bool names_model(const std::string& words, const std::string& model) {
  for (std::size_t begin = words.find('-'); begin + 1 < words.size(); begin = words.find('-', begin + 1)) {
    std::size_t at = begin + 1, same = 0;
    for (; at < words.size() && same < model.size(); ++at)
      if (words[at] == model[same])
        ++same;
      else if (words[at] != '-')
        break;
    if (same < model.size() || words[at] != '-') continue;
    const std::string next = words.substr(at + 1, words.find('-', at + 1) - at - 1);
    for (const char* other : {"ti", "super", "laptop", "mobile", "max", "d", "m", "vf"})
      if (next == other) return false;
    return true;
  }
  return false;
}

}  // namespace

const hal::Profile* shipped_profile_of(const std::string& device_name) {
  const std::string words = "-" + slug(device_name, '-') + "-";
  for (const hal::Profile& profile : hal::shipped_profiles())
    if (profile.kind == hal::ProfileKind::gpu && names_model(words, slug(profile.name, '\0')))
      return &profile;
  return nullptr;
}

hal::Profile own_profile(const hal::DeviceInfo& info, const DriverFacts& facts) {
  const hal::Profile* shipped = info.is_cpu ? nullptr : shipped_profile_of(info.name);
  hal::Profile p;
  if (shipped) {
    p = *shipped;
    for (auto& [field, source] : p.sources) source = "profile " + p.name + ", matched by name: " + source;
  } else {
    p.name = info.is_cpu ? "host-cpu" : slug(info.name, '-');
    if (p.name.empty()) p.name = "gpu";
  }
  p.product = info.name;
  p.kind = info.is_cpu ? hal::ProfileKind::host : hal::ProfileKind::gpu;
  p.memory_bytes = info.limits.memory_bytes;
  p.scratch_bytes = info.limits.max_local_bytes;
  p.max_workgroup = info.limits.max_workgroup;
  p.lanes = std::max(1, facts.lanes);
  for (const char* field : {"memory_bytes", "scratch_bytes", "max_workgroup", "lanes"})
    p.sources[field] = facts.driver;
  if (facts.cores > 0) {
    p.cores = facts.cores;
    p.sources["cores"] = facts.cores_source;
  }
  if (const auto shapes = matrix_shapes(info, hal::DType::f16); !shapes.empty()) {
    p.matrix_tile = {shapes.front().m, shapes.front().n, shapes.front().k};
    for (const char* field : {"matrix_tile_m", "matrix_tile_n", "matrix_tile_k"})
      p.sources[field] = facts.driver;
  }
  if (shipped) return p;
  if (const double flops = facts.cores * facts.flops_per_core_cycle * facts.hertz; flops > 0) {
    p.peak_flops[hal::DType::f32] = flops;
    p.sources["peak_flops.f32"] = "estimate: " + facts.flops_source;
    p.memory_bytes_per_second = info.is_cpu ? 40e9 : flops / 40;
    p.sources["memory_bytes_per_second"] =
        info.is_cpu ? "estimate: two channels of DDR4" : "estimate: one byte per 40 FLOP, as GPUs have";
  }
  return p;
}

}  // namespace meshloom::backends::simt
