// Composed programs and their memory as text, kept in golden/: MESHLOOM_UPDATE_GOLDEN=1 writes them anew.
// Over the contracts alone, so that a new or faster kernel changes nothing here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/program/print.h"
#include "tests/golden_text.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

struct Texts {
  std::string programs, memory;
};

// One layer: short enough to be read.
Texts compose(std::vector<trainer::RematRule> remat, std::int64_t accumulation) {
  kernels::Catalog contracts;
  kernels::add_contracts(contracts);
  trainer::ComposeOptions options = small_options();
  options.accumulation = accumulation;
  options.remat = std::move(remat);
  hal::DeviceInfo device;
  device.id = device.backend = "none";
  device.profile = hal::find_profile("host-cpu");
  const trainer::Plan plan = trainer::compose_training(
      layers::llama_config(
          {.vocab = 19, .dim = 16, .layers = 1, .heads = 4, .kv_heads = 2, .ffn = 24, .tied = true}),
      adamw(), options, contracts, device);
  Texts texts;
  for (const auto& [name, planned] : plan.steps.programs)
    texts.programs += kernels::print(planned.program) + "\n";
  texts.memory = fmt::format("peak {}\n", plan.peak_bytes);
  for (const auto& [name, bytes] : plan.memory) texts.memory += fmt::format("class {} {}\n", name, bytes);
  for (const trainer::Block& block : plan.blocks)
    texts.memory += fmt::format("block '{}' {}\n", block.label, block.bytes);
  for (const auto& [name, place] : plan.persistent)
    texts.memory +=
        fmt::format("'{}' in block {} at {}, {} bytes\n", name, place.block, place.offset, place.bytes);
  return texts;
}

TEST(Golden, Train) {
  const Texts texts = compose({}, 1);
  expect_golden("trainer/compose/golden/train.txt", texts.programs);
  expect_golden("trainer/compose/golden/train_memory.txt", texts.memory);
}

TEST(Golden, Rematerialised) {
  expect_golden("trainer/compose/golden/remat.txt",
                compose({{".*", trainer::RematPolicy::recompute}}, 1).programs);
}

TEST(Golden, Accumulation) {
  expect_golden("trainer/compose/golden/accumulation.txt", compose({}, 2).programs);
}

}  // namespace
}  // namespace meshloom::tests
