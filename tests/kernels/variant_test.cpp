// Every variant of every device against the reference: the contracts' cases, then random ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/program/call_text.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

// One open device per profile it runs as.
class Devices {
 public:
  Devices(const hal::Registry& registry, std::string id) : registry_(registry), id_(std::move(id)) {}

  hal::Device& as(const std::string& profile) {
    std::unique_ptr<hal::Device>& device = open_[profile];
    if (!device) device = hal::checked(registry_.open(id_, profile));
    return *device;
  }

 private:
  const hal::Registry& registry_;
  std::string id_;
  std::map<std::string, std::unique_ptr<hal::Device>> open_;
};

class Variants : public testing::TestWithParam<VariantTarget> {
 protected:
  static constexpr std::size_t kMany = 30;  // cases

  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
  }

  // Kernels of GPU drivers are compiled for every new shape. Where an op has many cases, variants for other chips than the one
  // that is here take every sixth, but in full runs.
  static std::size_t stride(const kernels::Contract& contract, const kernels::Variant& variant,
                            const hal::DeviceInfo& here) {
    const bool ours = variant.kinds.empty() || std::find(variant.kinds.begin(), variant.kinds.end(),
                                                         here.profile.kind) != variant.kinds.end();
    return ours || variant.backend == "cpu" || slow_cases() || contract.cases().size() <= kMany ? 1 : 6;
  }

  void test_device(const std::string& id) {
    Devices devices(registry_, id);
    const kernels::Contract& contract = catalog_.contract(GetParam().op);
    const kernels::Variant& variant = *catalog_.find(GetParam().op, GetParam().backend, GetParam().variant);
    std::vector<std::string> profiles;
    for (hal::ProfileKind kind : variant.kinds) profiles.push_back(profile_for(devices.as(""), kind));
    if (profiles.empty()) profiles.push_back("");
    int ran = 0, refused = 0, tuned = 0;
    double worst = 0;
    std::string refusal;
    std::set<std::string> distinct;  // calls
    // Every parameter that tuning would try, and every dtype, is a kernel that a GPU's driver compiles. Where an op has many cases, a
    // third of them take other parameters, and half of them 16-bit floats too, but in full runs.
    const std::size_t others_every =
        variant.backend == "cpu" || slow_cases() || contract.cases().size() <= kMany ? 1 : 3;
    const std::uint64_t narrow_every = others_every == 1 ? 1 : 2;
    std::size_t others_turn = 0;
    for (const std::string& profile : profiles) {
      const auto take = [&](const Outcome& outcome) {
        worst = std::max(worst, outcome.worst);
        for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
      };
      const auto run = [&](const kernels::Case& test, std::uint64_t seed, std::uint64_t kind) {
        hal::Device& device = devices.as(profile);
        const CaseCall call(catalog_, contract.name, test);
        const Outcome outcome = run_variant(device, variant, call, seed);
        (outcome.ran ? ran : refused) += 1;
        if (outcome.ran)
          distinct.insert(profile + kernels::inputs_text(call.view().inputs, call.view().attrs));
        if (!outcome.ran) refusal = outcome.refusal;
        take(outcome);
        if (!outcome.ran || !variant.alternatives ||
            (!variant.low_precision && kernels::any_low_precision(call.view())))
          return;
        // One of the parameters that tuning would try; over the cases all of them get their turn.
        const std::vector<kernels::Fit> others = variant.alternatives(call.view(), device.info());
        if (others.empty() || others_turn++ % others_every != 0) return;
        take(run_variant(device, variant, others[kind % others.size()], call, seed));
        ++tuned;
      };
      // The same with 16-bit floats where the op takes them, of either kind in turn.
      const auto run_narrow = [&](const kernels::Case& test, std::uint64_t seed, std::uint64_t kind) {
        const kernels::DType dtype = kind % 2 ? kernels::DType::bf16 : kernels::DType::f16;
        if (const auto narrow = kernels::to_low_precision(contract, test, dtype)) run(*narrow, seed, kind);
      };
      std::uint64_t seed = 1;
      const std::size_t every = stride(contract, variant, devices.as("").info());
      std::size_t turn = variant.name.size();  // other cases for other variants
      for (const kernels::Case& test : contract.cases())
        if ((!test.slow || slow_cases()) && turn++ % every == 0) {
          if (!variant.backend.empty() && seed % narrow_every == 0)
            run_narrow(test, seed, seed / narrow_every);
          run(test, seed, seed);
          ++seed;
        }
      // The reference is the same everywhere; kernels of GPU drivers are compiled for every new shape.
      const int rounds = variant.backend.empty() ? 0
                                                 : fuzz_rounds(GetParam().backend == "cpu" ? kCpuRounds
                                                               : every > 1                 ? 3
                                                                                           : 8);
      const int from = fuzz_from();
      if (!contract.random_case || rounds == 0) continue;
      const std::vector<std::int64_t> tiles = tile_sizes(catalog_, variant, devices.as(profile).info());
      for (int i = from; i < from + rounds; ++i) {
        const RandomCall random = random_call(contract, tiles, i);
        run(random.test, random.seed, random.kind);
        if (i % 2) run_narrow(random.test, random.seed, random.kind + static_cast<std::uint64_t>(i / 2));
      }
    }
    fmt::print(
        "  {}{}{}: {} '{}': {} cases ran{}, {} of them distinct, {} refused{}, worst error {:.3f} of what is "
        "allowed\n",
        id, profiles.front().empty() ? "" : " as ", fmt::join(profiles, ", "), contract.name, variant.name,
        ran, tuned ? fmt::format(" ({} with other parameters too)", tuned) : "", distinct.size(), refused,
        refused ? " (" + refusal + ")" : "", worst);
    std::fflush(stdout);
    // A device that has what the variant needs and computes wrongly with it.
    const auto& self_test_results = devices.as(profiles.front()).info().self_test_results;
    if (const auto verdict = self_test_results.find(variant.key()); verdict != self_test_results.end()) {
      EXPECT_EQ(verdict->second, "");
    }
    // Not every driver has a matrix unit; and scripts/test-drivers meets drivers that a variant has a reason to avoid.
    if (ran == 0 && (variant.needs_self_test || std::getenv("MESHLOOM_ANY_DRIVER")))
      GTEST_SKIP() << variant.name << " refuses: " << refusal;
    EXPECT_GT(ran, 0) << variant.name << " on " << id << " fits not one case: " << refusal;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
};

TEST_P(Variants, EqualTheReference) {
  for (const hal::BackendDevices& found : registry_.enumerate()) {
    if (found.backend != GetParam().backend) continue;
    if (found.devices.empty()) GTEST_SKIP() << found.why_none;
    for (const hal::DeviceInfo& device : found.devices) test_device(device.id);
    return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Variants, testing::ValuesIn(variant_targets()), [](const auto& info) {
  return info.param.op + "_" + info.param.variant + "_" + info.param.backend;
});

}  // namespace
}  // namespace meshloom::tests
