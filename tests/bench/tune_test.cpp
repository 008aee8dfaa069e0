// The tuning database, and who uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "bench/core/tune.h"
#include "hal/error.h"
#include "hal/registry.h"
#include "tests/bench/planted.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TuneTest : public ::testing::Test {
 protected:
  TuneTest() {
    const char* before = std::getenv("MESHLOOM_CACHE_DIR");
    if (before) cache_before_ = before;
    had_cache_ = before != nullptr;
    setenv("MESHLOOM_CACHE_DIR", scratch.path().c_str(), 1);
    kernels::add_contracts(catalog);
    register_backends(registry, catalog);
    plant_bad(catalog);
    device = registry.open("cpu");
  }
  ~TuneTest() override {
    if (had_cache_)
      setenv("MESHLOOM_CACHE_DIR", cache_before_.c_str(), 1);
    else
      unsetenv("MESHLOOM_CACHE_DIR");
  }

  kernels::Choice choice(const Workload& workload, const std::vector<trainer::KernelRule>& rules) {
    trainer::VariantSelector selector(catalog, device->info(), rules);
    return *selector.select(program_of(workload)).calls.front().choice;
  }
  std::vector<std::string> tuned_notes(const Workload& workload,
                                       const std::vector<trainer::KernelRule>& rules) {
    trainer::VariantSelector selector(catalog, device->info(), rules);
    selector.select(program_of(workload));
    return selector.tuned_rules();
  }
  kernels::Program program_of(const Workload& workload) {
    kernels::Program program;
    kernels::Builder builder(catalog, program);
    std::vector<kernels::Tensor> inputs;
    for (const kernels::TensorType& type : workload.inputs)
      inputs.push_back(builder.input("in", type, kernels::Role::input));
    builder.call(workload.contract->name, inputs, workload.attrs);
    return program;
  }
  std::string chosen(const Workload& workload, const std::vector<trainer::KernelRule>& rules) {
    return choice(workload, rules).variant->name;
  }

  tests::Scratch scratch;
  kernels::Catalog catalog;
  hal::Registry registry;
  std::unique_ptr<hal::Device> device;

 private:
  std::string cache_before_;
  bool had_cache_ = false;
};

TEST_F(TuneTest, WhatIsSavedIsLoadedForTheSameDeviceOnly) {
  trainer::Tuning tuning(device->info());
  EXPECT_FALSE(trainer::Tuning::load(device->info()));
  tuning.set("matmul f32(2, 3), f32(3, 4)", {"naive", {}, 1e-6, "packed", 2e-6});
  tuning.save();
  const auto loaded = trainer::Tuning::load(device->info());
  ASSERT_TRUE(loaded);
  ASSERT_TRUE(loaded->find("matmul f32(2, 3), f32(3, 4)"));
  EXPECT_EQ(loaded->find("matmul f32(2, 3), f32(3, 4)")->variant, "naive");
  EXPECT_EQ(loaded->find("matmul f32(2, 3), f32(3, 5)"), nullptr);
  hal::DeviceInfo newer = device->info();
  newer.driver += " 2";
  EXPECT_FALSE(trainer::Tuning::load(newer)) << "another driver";
  hal::DeviceInfo other = device->info();
  other.profile.name = "h100";
  EXPECT_FALSE(trainer::Tuning::load(other)) << "another profile";
  std::ofstream(tuning.path()) << "{\"schema\":";
  std::string note;
  EXPECT_FALSE(trainer::Tuning::load(device->info(), &note)) << "cut";
  EXPECT_THAT(note, AllOf(HasSubstr("is ignored"), HasSubstr(tuning.path().filename().string())));
}

TEST_F(TuneTest, TwoThatSaveKeepBothResults) {
  trainer::Tuning one(device->info()), two(device->info());
  one.set("a", {"naive", {}, 1e-6, "packed", 2e-6});
  one.save();
  two.set("b", {"naive", {}, 1e-6, "packed", 2e-6});
  two.save();
  one.set("c", {"naive", {}, 1e-6, "packed", 2e-6});
  one.save();
  const auto loaded = trainer::Tuning::load(device->info());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->calls().size(), 3u);
}

TEST_F(TuneTest, SavingFollowsNoLink) {
  trainer::Tuning tuning(device->info());
  tuning.save();
  const std::string victim = scratch.file("victim", "precious");
  const std::filesystem::path path = tuning.path();
  std::filesystem::remove(path);
  std::filesystem::create_symlink(victim, path);
  std::filesystem::create_symlink(victim, path.string() + ".part");
  tuning.save();
  EXPECT_EQ(tests::read_text(victim), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path));
}

TEST_F(TuneTest, ManyProcessesSaveAtOnce) {
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      try {
        trainer::Tuning tuning(device->info());
        for (int j = 0; j < 20; ++j) {
          tuning.set(std::to_string(i) + "/" + std::to_string(j), {"naive", {}, 1e-6, "packed", 2e-6});
          tuning.save();
        }
      } catch (...) {
        good = false;
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto loaded = trainer::Tuning::load(device->info());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->calls().size(), kProcesses * 20u);
}

TEST_F(TuneTest, SelectionAsksOnlyWhereARuleSaysSo) {
  const Workload workload = parse_shapes(catalog, "matmul", "64x64x64", hal::DType::f32)[0];
  const Workload near = parse_shapes(catalog, "matmul", "64x70x65", hal::DType::f32)[0];
  const Workload far = parse_shapes(catalog, "matmul", "64x64x130", hal::DType::f32)[0];
  const Workload other = parse_shapes(catalog, "matmul", "64x64x64:tb", hal::DType::f32)[0];
  const std::string standard = chosen(workload, {});
  ASSERT_NE(standard, "naive");
  const trainer::KernelRule rule{".*", ".*", "tuned"};
  try {
    chosen(workload, {rule});
    FAIL() << "without measurements";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bench tune"));
  }
  trainer::Tuning tuning(device->info());
  tuning.set(workload.call(), {"naive", {}, 1e-6, standard, 2e-6});
  tuning.save();
  EXPECT_EQ(chosen(workload, {rule}), "naive");
  EXPECT_EQ(chosen(workload, {}), standard);
  EXPECT_EQ(chosen(near, {rule}), "naive") << "a call like the tuned one";
  EXPECT_EQ(chosen(far, {rule}), standard) << "a call with a dimension more than twice as long";
  EXPECT_EQ(chosen(other, {rule}), standard) << "a call with other attributes";
  EXPECT_EQ(chosen(workload, {rule, {"matmul", ".*", standard}}), standard) << "a later rule wins";
  tuning.set(workload.call(), {"vanished", {}, 1e-6, standard, 2e-6});
  tuning.save();
  EXPECT_EQ(chosen(workload, {rule}), standard) << "a variant that this build has not";
}

TEST_F(TuneTest, DevicesAreLikeEachOther) {
  hal::DeviceInfo measured = device->info();
  measured.backend = "vulkan";
  measured.vendor = "AMD";
  measured.name = "RX 7900";
  measured.driver = "radv 25";
  measured.is_cpu = false;
  measured.profile.kind = hal::ProfileKind::gpu;
  const trainer::Tuning tuning(measured);
  hal::DeviceInfo updated = measured, sibling = measured, stranger = measured;
  updated.driver = "radv 26";
  sibling.name = "RX 7600";
  stranger.name = "Arc";
  stranger.vendor = "Intel";
  stranger.driver = "anv";
  EXPECT_GT(tuning.similarity(measured), tuning.similarity(updated));
  EXPECT_GT(tuning.similarity(updated), tuning.similarity(sibling));
  EXPECT_GT(tuning.similarity(sibling), tuning.similarity(stranger));
  EXPECT_GT(tuning.similarity(stranger), 0);
  for (const auto& spoil : std::vector<std::function<void(hal::DeviceInfo&)>>{
           [](hal::DeviceInfo& info) { info.backend = "opencl"; },
           [](hal::DeviceInfo& info) { info.is_cpu = true; },
           [](hal::DeviceInfo& info) { info.profile.kind = hal::ProfileKind::tpu; }}) {
    hal::DeviceInfo other = measured;
    spoil(other);
    EXPECT_EQ(tuning.similarity(other), 0);
  }
}

TEST_F(TuneTest, WhatTheProgramCarriesCanBeUsed) {
  for (const hal::BackendDevices& found : registry.enumerate())
    for (const hal::DeviceInfo& info : found.devices) {
      const trainer::Tuning* tuning = trainer::shipped_tuning(info);
      if (!tuning) continue;
      EXPECT_GT(tuning->similarity(info), 0);
      EXPECT_FALSE(tuning->calls().empty());
      for (const auto& [call, tuned] : tuning->calls())
        EXPECT_TRUE(catalog.find(call.substr(0, call.find(' ')), info.backend, tuned.variant)) << call;
    }
}

TEST_F(TuneTest, ParametersThatWereMeasuredAreUsed) {
  const Workload workload = parse_shapes(catalog, "matmul", "300x500x700", hal::DType::f32)[0];
  const kernels::Choice standard = choice(workload, {});
  ASSERT_NE(standard.variant->alternatives, nullptr);
  const auto others = standard.variant->alternatives(workload.view(), device->info());
  const auto other = std::find_if(others.begin(), others.end(),
                                  [&](const kernels::Fit& fit) { return fit.params != standard.params; });
  ASSERT_NE(other, others.end());
  const trainer::KernelRule rule{".*", ".*", "tuned"};
  trainer::Tuning tuning(device->info());
  tuning.set(workload.call(), {standard.variant->name, other->params, 1e-6, standard.variant->name, 2e-6});
  tuning.save();
  EXPECT_EQ(choice(workload, {rule}).params, other->params);
  EXPECT_THAT(tuned_notes(workload, {rule}),
              ::testing::ElementsAre(HasSubstr("1 calls use tuned results, 1 of")));
  EXPECT_THAT(tuned_notes(workload, {}), IsEmpty());
  EXPECT_EQ(choice(workload, {}).params, standard.params);
  tuning.set(workload.call(), {standard.variant->name, {{"gone", 1}}, 1e-6, standard.variant->name, 2e-6});
  tuning.save();
  EXPECT_EQ(choice(workload, {rule}).params, standard.params)
      << "parameters that the variant no longer offers";
}

TEST_F(TuneTest, BadChallengersCostOnlyThemselves) {
  trainer::Tuning tuning(device->info());
  int saves = 0;
  TuneOptions options;
  options.budget = 30;  // more than a loaded machine takes for three challengers
  const auto results = tune(*device, catalog, parse_shapes(catalog, "matmul", "32x48x16", hal::DType::f32),
                            options, tuning, [&] { ++saves; });
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(saves, 1);
  const TuningResult& result = results.front();
  EXPECT_NE(result.winner, "idle");
  EXPECT_NE(result.winner, "throwing");
  EXPECT_THAT(result.problems, ::testing::Contains(HasSubstr("idle is wrong")));
  EXPECT_THAT(result.problems, ::testing::Contains(HasSubstr("throwing failed")));
  EXPECT_GT(result.seconds, 0);
  EXPECT_NEAR(result.standard_seconds / result.seconds, result.gain, 1e-9);
  EXPECT_TRUE(result.winner == result.standard ? result.gain == 1 : result.gain > 1 + kMinGain)
      << result.gain;
  ASSERT_TRUE(tuning.find(result.call));
  EXPECT_THAT(result.winner, ::testing::StartsWith(tuning.find(result.call)->variant))
      << "parameters may follow";
  EXPECT_THAT(to_text(results), HasSubstr("1 call:"));
}

TEST_F(TuneTest, StopsWhenTheBudgetIsSpent) {
  trainer::Tuning tuning(device->info());
  TuneOptions options;
  options.budget = 1e-9;
  EXPECT_THAT(tune(*device, catalog, parse_shapes(catalog, "matmul", "32x48x16", hal::DType::f32), options,
                   tuning, [] {}),
              IsEmpty());
}

TEST_F(TuneTest, WhatIsKnownComesLastAndIsKeptWhereLittleWasTried) {
  const std::vector<Workload> workloads =
      parse_shapes(catalog, "matmul", "32x48x16;24x40x8", hal::DType::f32);
  trainer::Tuning tuning(device->info());
  tuning.set(workloads[0].call(), {"naive", {}, 1e-6, "packed", 3e-6});
  bool begun = false;
  TuneOptions options;
  options.progress = [&](int, int, const std::string&) { begun = true; };
  options.stopped = [&] { return begun; };
  auto results = tune(*device, catalog, workloads, options, tuning, [] {});
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(results[0].call, workloads[1].call());
  EXPECT_GT(results[0].untried, 0);
  EXPECT_EQ(tuning.find(workloads[1].call()), nullptr) << "nothing is known of it yet";
  EXPECT_THAT(to_text(results), HasSubstr("were not tried: out of time"));
  begun = false;
  results = tune(*device, catalog, {workloads[0]}, options, tuning, [] {});
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(tuning.find(workloads[0].call())->variant, "naive");
}

TEST_F(TuneTest, TheCommandsGoTogether) {
  const std::string set = "--device cpu --set sequence=16 --set batch=1";
  EXPECT_EQ(tests::meshloom("plan tiny --tuned " + set).code, 1) << "nothing was tuned";
  // An op of few variants, so that also on a busy machine all of them are compared in the time.
  const tests::Outcome run = tests::meshloom("bench tune tiny --quiet --budget 2s --op rms_norm " + set);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("saved"));
  const tests::Outcome plan = tests::meshloom("plan tiny --tuned " + set);
  EXPECT_EQ(plan.code, 0) << plan.err;
}

}  // namespace
}  // namespace meshloom::bench
