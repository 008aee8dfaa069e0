// Times of calls by inspections made by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "hal/profile.h"
#include "kernels/core/catalog.h"
#include "trainer/compose/cost/cost_model.h"
#include "trainer/execute/estimate_call.h"

namespace meshloom::tests {
namespace {

using trainer::Bound;
using trainer::EstimatedCall;
using trainer::InspectedCall;
using trainer::InspectedPipeline;

class EstimateCall : public testing::Test {
 protected:
  EstimateCall() {
    kernels::add_contracts(catalog_);
    device_.backend = "opencl";
    device_.id = "opencl:sm_86";
    device_.profile = hal::find_profile("rtx3090");
    variant_.op = "matmul";
    variant_.name = "gpu_tile";
    variant_.contract = &catalog_.contract("matmul");
    call_.choice.variant = &variant_;
  }

  // Of 100 cycles of issue 80 multiply; the workgroups fill every multiprocessor evenly.
  void add_pipeline(double local_cycles) {
    InspectedPipeline one;
    one.spec.workgroup = {256, 1, 1};
    one.groups = {static_cast<std::uint32_t>(device_.profile.cores), 4, 1};
    one.dispatches = 1;
    hal::LoopInspection loop;
    loop.main = loop.product = true;
    loop.issue_cycles = 100;
    loop.multiply_cycles = 80;
    loop.local_cycles = local_cycles;
    one.found.loops = {loop};
    one.found.waves = 4;
    call_.pipelines.push_back(one);
  }

  EstimatedCall estimate(std::int64_t m, std::int64_t n, std::int64_t k) const {
    const std::vector<kernels::TensorType> inputs{{hal::DType::f32, {m, k}}, {hal::DType::f32, {k, n}}};
    const std::vector<kernels::TensorType> outputs = variant_.contract->infer(inputs, {});
    const kernels::Attrs attrs;
    return trainer::estimate_call(call_, *variant_.contract, {"matmul", inputs, outputs, attrs}, device_);
  }
  double launch() const { return trainer::launch_seconds(device_).first; }

  kernels::Catalog catalog_;
  kernels::Variant variant_;
  hal::DeviceInfo device_;
  InspectedCall call_;
};

TEST_F(EstimateCall, LocalMemoryWorksInTurnOrBehindTheInstructions) {
  add_pipeline(60);
  const EstimatedCall found = estimate(4096, 4096, 4096);
  EXPECT_EQ(found.flops, 2.0 * 4096 * 4096 * 4096);
  EXPECT_EQ(found.bound, Bound::multiplying);
  EXPECT_NEAR((found.likely_seconds - launch()) / (found.best_seconds - launch()), 1.6, 1e-9);
  const double peak = device_.profile.flops(hal::DType::f32);
  EXPECT_NEAR(found.peak_share, found.flops / found.likely_seconds / peak, 1e-9);
  EXPECT_LT(found.peak_share, 80.0 / 160) << "no kernel sustains the rate of the data sheet";
  EXPECT_GT(found.peak_share, 0.7 * 80 / 160);
}

TEST_F(EstimateCall, BytesAndLaunchesBoundWhatMultipliesLittle) {
  add_pipeline(0);
  const EstimatedCall row = estimate(1, 8192, 8192);
  EXPECT_EQ(row.bound, Bound::memory);
  EXPECT_GT(row.likely_seconds, row.bytes / device_.profile.memory_bytes_per_second);
  EXPECT_EQ(row.likely_seconds, row.best_seconds);
  const EstimatedCall small = estimate(8, 8, 8);
  EXPECT_EQ(small.bound, Bound::launches);
  EXPECT_GE(small.likely_seconds, launch());
  add_pipeline(0);
  EXPECT_GE(estimate(8, 8, 8).likely_seconds, 2 * launch()) << "of two dispatches";
}

// Chains of a few operations are not what a loop's multiplications are counted for.
TEST_F(EstimateCall, FewOperationsPerByteTakeAsLongAsTheBytes) {
  add_pipeline(0);
  const double of_bytes = estimate(1, 8192, 8192).likely_seconds;
  call_.pipelines[0].found.loops[0].multiply_cycles = 0.1;
  const EstimatedCall found = estimate(1, 8192, 8192);
  EXPECT_EQ(found.bound, Bound::memory);
  EXPECT_EQ(found.likely_seconds, of_bytes);
  EXPECT_EQ(estimate(4096, 4096, 4096).bound, Bound::multiplying);
}

TEST_F(EstimateCall, WithoutALoopTheEfficiencyElsewhereIsTaken) {
  add_pipeline(0);
  call_.pipelines[0].found.loops.clear();
  const EstimatedCall found = estimate(4096, 4096, 4096);
  EXPECT_EQ(found.bound, Bound::unknown);
  const double rate = device_.profile.flops(hal::DType::f32);
  EXPECT_NEAR(found.likely_seconds - launch(),
              found.flops / rate / trainer::efficiency_of(call_.choice, device_).flops, 1e-12);
}

// Half of the multiprocessors have no work.
TEST_F(EstimateCall, IdleMultiprocessorsCount) {
  add_pipeline(0);
  const double all = estimate(4096, 4096, 4096).likely_seconds - launch();
  call_.pipelines[0].groups = {static_cast<std::uint32_t>(device_.profile.cores / 2), 1, 1};
  EXPECT_NEAR((estimate(4096, 4096, 4096).likely_seconds - launch()) / all, 2, 1e-9);
}

// A first kernel writes the workspace, then the product reads it.
TEST_F(EstimateCall, WorkspacesAreWrittenBefore) {
  add_pipeline(0);
  const double none = estimate(4096, 4096, 4096).likely_seconds;
  call_.choice.workspace_bytes = std::int64_t{1} << 30;
  const double pass = 1.0 * (1 << 30) / device_.profile.memory_bytes_per_second /
                      trainer::efficiency_of(call_.choice, device_).bytes;
  EXPECT_NEAR(estimate(4096, 4096, 4096).likely_seconds - none, pass, 1e-9);
  call_.choice.workspace_bytes *= 100;
  const EstimatedCall most = estimate(4096, 4096, 4096);
  EXPECT_EQ(most.bound, Bound::memory);
  EXPECT_GT(most.likely_seconds, 200 * pass);
}

}  // namespace
}  // namespace meshloom::tests
