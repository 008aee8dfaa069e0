#include "bench/plans/chips.h"

#include <vector>

namespace meshloom::bench {
namespace {

// Tried in order. Networks are those of the makers' reference boxes, as sources do not say theirs.
const std::vector<Chip>& table() {
  constexpr double kGB = 1e9, kTB = 1e12;
  static const std::vector<Chip> chips = {
      {"A100", "40GB", "a100", "a100", 1.555 * kTB, 300 * kGB, 25 * kGB, 8,
       "NVIDIA A100 datasheet (40 GB: 1,555 GB/s; NVLink 600 GB/s both ways); DGX A100: 200 Gbit/s a GPU"},
      {"A100", "", "a100", "a100", 0, 300 * kGB, 25 * kGB, 8,
       "NVIDIA A100 datasheet (NVLink 600 GB/s both ways); DGX A100: 200 Gbit/s a GPU"},
      {"H100", "HBM2e", "h100", "h100", 2.4 * kTB, 450 * kGB, 50 * kGB, 8,
       "TorchTitan's benchmarks (2.4 TB/s); NVIDIA H100 datasheet; DGX H100: 400 Gbit/s a GPU"},
      {"H100", "", "h100", "h100", 0, 450 * kGB, 50 * kGB, 8,
       "NVIDIA H100 datasheet (NVLink 900 GB/s both ways); DGX H100: 400 Gbit/s a GPU"},
      {"H200", "", "h200", "h100", 0, 450 * kGB, 50 * kGB, 8,
       "NVIDIA H200 datasheet (NVLink 900 GB/s both ways); DGX H200: 400 Gbit/s a GPU"},
      {"B200", "", "b200", "b200", 0, 900 * kGB, 50 * kGB, 8,
       "NVIDIA DGX B200 datasheet (NVLink 14.4 TB/s both ways for 8); 400 Gbit/s a GPU"},
      {"MI300X", "", "mi300x", "mi300x", 0, 448 * kGB, 50 * kGB, 8,
       "AMD MI300X datasheet (7 links of 128 GB/s both ways); 400 Gbit/s a GPU"},
      {"TPU v4", "", "tpu-v4", "tpu", 0, 300 * kGB, 6.25 * kGB, 4096,
       "Google Cloud TPU v4 documentation (6 ICI links of 50 GB/s); data center network of 200 Gbit/s a host "
       "of 4"},
      {"TPU v5e", "", "tpu-v5e", "tpu", 0, 200 * kGB, 3.125 * kGB, 256,
       "Google Cloud TPU v5e documentation (ICI 1,600 Gbit/s); data center network of 100 Gbit/s a host of "
       "4"},
      {"TPU v5p", "", "tpu-v5p", "tpu", 0, 600 * kGB, 6.25 * kGB, 8960,
       "Google Cloud TPU v5p documentation (ICI 4,800 Gbit/s); data center network of 200 Gbit/s a host of "
       "4"},
      {"TPU v6e", "", "tpu-v6e", "tpu", 0, 400 * kGB, 6.25 * kGB, 256,
       "Google Cloud TPU v6e documentation (ICI 3,200 Gbit/s); data center network"},
  };
  return chips;
}

}  // namespace

const Chip* find_chip(const std::string& name) {
  for (const Chip& chip : table())
    if (name.starts_with(chip.begins) && name.find(chip.contains) != std::string::npos) return &chip;
  return nullptr;
}

std::string known_chips() {
  std::string text;
  for (const Chip& chip : table())
    if (chip.contains.empty()) text += (text.empty() ? "" : ", ") + chip.begins;
  return text;
}

}  // namespace meshloom::bench
