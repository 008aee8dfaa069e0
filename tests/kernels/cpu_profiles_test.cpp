// Matmul and attention on the CPU shaped for other chips: tiles follow the memories of the profile, what
// cannot hold them is refused with the numbers, and the block-sparse schedule says exactly what the mask
// says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/cpu/device/device.h"
#include "backends/cpu/kernels/flash_attention/flash_attention_splash.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

const std::map<hal::ProfileKind, std::string> kFamilies{{hal::ProfileKind::gpu, "h100"},
                                                        {hal::ProfileKind::tpu, "tpu-v5e"},
                                                        {hal::ProfileKind::trainium, "trn2"}};

class CpuProfiles : public testing::Test {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    backends::cpu::add_cpu_variants(catalog_);
  }

  // Each variant of the three ops that is shaped for a family, with a profile of that family.
  template <typename F>
  void each(F visit) {
    for (const char* op : {"matmul", "flash_attention", "flash_attention_grad"})
      for (const kernels::Variant* variant : catalog_.variants(op, "cpu"))
        for (const hal::ProfileKind kind : variant->kinds)
          if (const auto family = kFamilies.find(kind); family != kFamilies.end())
            visit(*variant, hal::find_profile(family->second));
  }

  kernels::Catalog catalog_;
};

TEST_F(CpuProfiles, TilesShrinkWithTheMemoriesAndStayRight) {
  std::map<std::string, int> ran;
  each([&](const kernels::Variant& variant, hal::Profile profile) {
    const kernels::Contract& contract = catalog_.contract(variant.op);
    for (const std::int64_t unit : {32, 16}) {
      for (const std::int64_t scratch : {4 << 10, 16 << 10, 40 << 10, 160 << 10}) {
        profile.scratch_bytes = scratch;
        profile.max_workgroup = 64;
        if (profile.kind != hal::ProfileKind::gpu)
          profile.matrix_tile = {16, static_cast<std::int32_t>(2 * unit), 16};
        if (profile.kind == hal::ProfileKind::trainium) {
          profile.partitions = static_cast<std::int32_t>(unit);
          profile.accumulator_bytes = 8 * 256 * 4 * unit;
        }
        auto device = hal::checked(std::make_unique<backends::cpu::CpuDevice>(2));
        device->run_as(profile);
        for (int i = 0; i < 6; ++i) {
          const CaseCall call(catalog_, variant.op,
                              contract.random_case({static_cast<std::uint64_t>(scratch + i)}));
          const Outcome outcome = run_variant(*device, variant, call, 5);
          for (const std::string& failure : outcome.failures)
            ADD_FAILURE() << scratch << " bytes: " << failure;
          if (outcome.ran) ++ran[variant.op + " " + variant.name];
        }
      }
    }
  });
  EXPECT_EQ(ran.size(), 9u);
  for (const auto& [variant, cases] : ran) EXPECT_GT(cases, 5) << variant;
}

TEST_F(CpuProfiles, RefusalsNameTheNumbers) {
  each([&](const kernels::Variant& variant, hal::Profile profile) {
    profile.scratch_bytes = 123;
    hal::DeviceInfo target;
    target.profile = profile;
    const kernels::Contract& contract = catalog_.contract(variant.op);
    const CaseCall call(catalog_, variant.op, contract.cases().front());
    const kernels::Fit fit = variant.answer(call.view(), target);
    EXPECT_FALSE(fit.ok) << variant.op << " " << variant.name;
    EXPECT_THAT(fit.reason, HasSubstr("123")) << variant.op << " " << variant.name;
    EXPECT_THAT(fit.reason, HasSubstr(profile.name)) << variant.op << " " << variant.name;
  });
}

TEST_F(CpuProfiles, AMissingUnitIsRefused) {
  each([&](const kernels::Variant& variant, hal::Profile profile) {
    if (profile.kind == hal::ProfileKind::gpu) return;
    profile.matrix_tile = {};
    profile.partitions = 0;
    hal::DeviceInfo target;
    target.profile = profile;
    const CaseCall call(catalog_, variant.op, catalog_.contract(variant.op).cases().front());
    const kernels::Fit fit = variant.answer(call.view(), target);
    EXPECT_FALSE(fit.ok) << variant.op << " " << variant.name;
    EXPECT_THAT(fit.reason, HasSubstr("has no")) << variant.op << " " << variant.name;
  });
}

using backends::cpu::FlashWork;

FlashWork attention(std::int32_t s, std::int32_t t, bool causal, std::int32_t tile_q, std::int32_t tile_k,
                    std::int32_t left = FlashWork::kUnlimitedSide) {
  FlashWork work{};
  work.b = work.h = work.kv = work.d = work.dv = work.span = 1;
  work.s = s;
  work.t = t;
  work.left = left;
  work.right = causal ? 0 : FlashWork::kUnlimitedSide;
  work.tile_q = tile_q;
  work.tile_k = tile_k;
  return work;
}

// How many (query, key) pairs of a block the mask shows, counted one by one.
std::int64_t visible(const FlashWork& work, std::int64_t row, std::int64_t block, std::int64_t* pairs) {
  std::int64_t seen = 0;
  *pairs = 0;
  for (std::int64_t i = row * work.tile_q; i < std::min<std::int64_t>(work.s, (row + 1) * work.tile_q); ++i)
    for (std::int64_t j = block * work.tile_k; j < std::min<std::int64_t>(work.t, (block + 1) * work.tile_k);
         ++j) {
      ++*pairs;
      const std::int64_t p = i + work.t - work.s;
      seen += (work.right == FlashWork::kUnlimitedSide || j <= p) &&
              (work.left == FlashWork::kUnlimitedSide || j >= p - work.left);
    }
  return seen;
}

TEST(SplashSchedule, VisitsExactlyTheBlocksOfTheMask) {
  for (const FlashWork& work :
       {attention(40, 40, true, 8, 8), attention(37, 53, true, 8, 16), attention(5, 90, true, 16, 8),
        attention(33, 20, false, 8, 8), attention(90, 90, true, 8, 8, 20), attention(33, 70, true, 16, 8, 0),
        attention(50, 90, false, 8, 16, 30), attention(1, 1, true, 8, 8), attention(64, 65, true, 16, 4)}) {
    for (const bool by_column : {false, true}) {
      const auto schedule =
          by_column ? backends::cpu::splash_columns(work) : backends::cpu::splash_rows(work);
      // Small parts: the cut must lose nothing.
      constexpr std::size_t kWords = sizeof(FlashWork) / 4 + 12;
      std::int64_t visited = 0, expected = 0, next = 0;
      for (const backends::cpu::SplashPart& part : backends::cpu::splash_parts(work, schedule, kWords)) {
        EXPECT_LE(part.words.size(), kWords);
        EXPECT_EQ(part.first, next);
        next += part.count;
        const backends::cpu::SplashSchedule read(part.words.data());
        ASSERT_EQ(read.rows(), part.count);
        for (std::int64_t i = 0; i < read.rows(); ++i)
          read.each(i, [&](std::int64_t other, bool masked) {
            const std::int64_t own = read.first() + i;
            std::int64_t pairs = 0;
            const std::int64_t seen =
                by_column ? visible(work, other, own, &pairs) : visible(work, own, other, &pairs);
            EXPECT_GT(seen, 0) << "an empty block is visited";
            EXPECT_EQ(masked, seen < pairs);
            ++visited;
          });
      }
      EXPECT_EQ(next, by_column ? work.tiles_k() : work.tiles_q());
      for (std::int64_t row = 0; row < work.tiles_q(); ++row)
        for (std::int64_t block = 0; block < work.tiles_k(); ++block) {
          std::int64_t pairs = 0;
          expected += visible(work, row, block, &pairs) > 0;
        }
      EXPECT_EQ(visited, expected);
    }
  }
}

TEST(SplashSchedule, ARowThatFitsNoDispatchIsAnError) {
  const FlashWork work = attention(8, 8, true, 8, 8);
  EXPECT_THROW(backends::cpu::splash_parts(work, backends::cpu::splash_rows(work), 8), Error);
}

}  // namespace
}  // namespace meshloom::tests
