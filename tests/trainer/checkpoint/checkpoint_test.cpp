#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "hal/error.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

CheckpointContents contents(float value) {
  CheckpointContents c;
  c.model = {{"model/w", {kernels::DType::f32, {300000}}}, {"model/b", {kernels::DType::f32, {3}}}};
  c.optimizer = {{"optimizer/step", {kernels::DType::f32, {1}}}};
  c.config = "Trainer {\n}\n";
  c.state = "{}\n";
  c.read = [value](const std::string& name, std::span<std::byte> into) {
    for (std::size_t i = 0; i + 4 <= into.size(); i += 4) {
      const float v = value + static_cast<float>(name.size()) + static_cast<float>(i % 64);
      std::memcpy(into.data() + i, &v, 4);
    }
  };
  return c;
}

std::vector<std::string> said;
Checkpoint newest(const std::string& directory) {
  said.clear();
  return open_newest(directory, [](const std::string& text) { said.push_back(text); });
}

void flip(const std::string& path, std::int64_t at) {
  std::string text = tests::read_text(path);
  text.at(static_cast<std::size_t>(at)) ^= 1;
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Checkpoint, SavesAndLoadsTheSameBits) {
  const tests::Scratch scratch;
  const std::string path = save_checkpoint(scratch.path("run"), 50, contents(1), 2);
  EXPECT_EQ(path, scratch.path("run") + "/step-00000050");
  const Checkpoint checkpoint = newest(scratch.path("run"));
  EXPECT_EQ(checkpoint.step, 50);
  EXPECT_TRUE(said.empty());
  int tensors = 0;
  load_tensors(checkpoint.model, contents(1).model,
               [&](const std::string& name, std::span<const std::byte> data) {
                 std::vector<std::byte> want(data.size());
                 contents(1).read(name, want);
                 EXPECT_EQ(std::memcmp(want.data(), data.data(), data.size()), 0);
                 ++tensors;
               });
  EXPECT_EQ(tensors, 2);
}

TEST(Checkpoint, KeepsTheNewest) {
  const tests::Scratch scratch;
  for (std::int64_t step : {10, 20, 30, 40}) save_checkpoint(scratch.path("run"), step, contents(1), 2);
  EXPECT_EQ(checkpoint_steps(scratch.path("run")), (std::vector<std::int64_t>{40, 30}));
  for (const auto& entry : fs::directory_iterator(scratch.path("run")))
    EXPECT_NE(entry.path().filename().string()[0], '.') << "leftovers";
}

TEST(Checkpoint, FallsBackFromDamage) {
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "config.txt", "state.json", "manifest.json"})
    for (const char* how : {"flip", "truncate", "remove"}) {
      const tests::Scratch scratch;
      const std::string run = scratch.path("run");
      save_checkpoint(run, 10, contents(1), 0);
      const std::string damaged = save_checkpoint(run, 20, contents(2), 0) + "/" + file;
      const auto size = static_cast<std::int64_t>(fs::file_size(damaged));
      if (how[0] == 'f') flip(damaged, size - 3);
      if (how[0] == 't') fs::resize_file(damaged, static_cast<std::uintmax_t>(size - 2));
      if (how[0] == 'r') fs::remove(damaged);
      const Checkpoint checkpoint = newest(run);
      EXPECT_EQ(checkpoint.step, 10) << file << " " << how;
      ASSERT_EQ(said.size(), 1u);
      EXPECT_NE(said[0].find("step 20"), std::string::npos) << said[0];
    }
}

TEST(Checkpoint, RefusesAnotherVersion) {
  const tests::Scratch scratch;
  save_checkpoint(scratch.path("run"), 10, contents(1), 0);
  const std::string manifest = save_checkpoint(scratch.path("run"), 20, contents(1), 0) + "/manifest.json";
  std::string text = tests::read_text(manifest);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
  std::ofstream(manifest) << text;
  EXPECT_EQ(newest(scratch.path("run")).step, 10) << "a damaged number: the rest is of this version";
  text.insert(text.find("\"step\""), "\"new\": true, ");
  text.replace(text.rfind("\"xxh64\": \"") + 10, 4, "0123");
  std::ofstream(manifest) << text;
  EXPECT_THROW(newest(scratch.path("run")), VersionMismatch);
}

TEST(Checkpoint, AFailedSaveLeavesEarlierOnes) {
  const tests::Scratch scratch;
  const std::string run = scratch.path("run");
  save_checkpoint(run, 10, contents(1), 2);
  CheckpointContents bad = contents(2);
  bad.read = [](const std::string&, std::span<std::byte>) { throw Error("device", "was lost"); };
  EXPECT_THROW(save_checkpoint(run, 20, bad, 2), Error);
  EXPECT_EQ(newest(run).step, 10);
  EXPECT_EQ(std::distance(fs::directory_iterator(run), fs::directory_iterator()), 1);
}

TEST(Checkpoint, UnhealthyOnesNeverTakeTheHealthyOnesPlace) {
  const tests::Scratch scratch;
  const std::string run = scratch.path("run");
  CheckpointContents bad = contents(1);
  bad.unhealthy = [] { return std::string("the loss is not finite"); };
  for (std::int64_t step : {10, 20, 30}) save_checkpoint(run, step, contents(1), 2);
  for (std::int64_t step : {40, 50, 60}) save_checkpoint(run, step, bad, 2);
  EXPECT_EQ(checkpoint_steps(run), (std::vector<std::int64_t>{60, 30, 20}));
  EXPECT_EQ(newest(run).step, 30);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("step 60 is marked unhealthy (the loss is not finite)"), std::string::npos)
      << said[0];
  fs::remove(checkpoint_path(run, 60) + "/unhealthy.txt");
  EXPECT_EQ(newest(run).step, 60);
  mark_unhealthy(checkpoint_path(run, 60), "again");
  EXPECT_EQ(newest(run).step, 30);
  // A healthy one makes it superfluous.
  save_checkpoint(run, 70, contents(1), 2);
  EXPECT_EQ(checkpoint_steps(run), (std::vector<std::int64_t>{70, 30}));
  for (std::int64_t step : {70, 30}) mark_unhealthy(checkpoint_path(run, step), "all");
  EXPECT_EQ(newest(run).step, 70) << "better than none";
}

// The newest checkpoint whose parameters a later loss has verified stays, although only one is kept.
TEST(Checkpoint, KeepsTheNewestProvenOne) {
  const tests::Scratch scratch;
  const std::string run = scratch.path("run");
  for (std::int64_t step : {10, 20, 30}) save_checkpoint(run, step, contents(1), 0);
  EXPECT_EQ(retain_checkpoints(run, 30, 1, 29), "");
  EXPECT_EQ(checkpoint_steps(run), (std::vector<std::int64_t>{30, 20}));
  EXPECT_EQ(retain_checkpoints(run, 30, 1, 30), "");
  EXPECT_EQ(checkpoint_steps(run), (std::vector<std::int64_t>{30}));
}

TEST(Checkpoint, ADirectoryNamedForAnotherStepIsPassedOver) {
  const tests::Scratch scratch;
  const std::string run = scratch.path("run");
  for (std::int64_t step : {10, 20}) save_checkpoint(run, step, contents(1), 0);
  fs::rename(checkpoint_path(run, 10), checkpoint_path(run, 90));
  EXPECT_EQ(newest(run).step, 20);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("a checkpoint of step 10 lies in step-00000010; found step-00000090"),
            std::string::npos)
      << said[0];
  // Under a name of its own it may lie anywhere.
  fs::rename(checkpoint_path(run, 90), scratch.path("best"));
  EXPECT_EQ(open_checkpoint(scratch.path("best") + "/").step, 10);
}

// A reader beside a run that saves as fast as it can and keeps one.
TEST(Checkpoint, IsNotRemovedUnderAReader) {
  const tests::Scratch scratch;
  const std::string run = scratch.path("run");
  save_checkpoint(run, 1, contents(1), 1);
  std::atomic<bool> done = false;
  std::int64_t saved = 1;
  std::thread writer([&] {
    while (!done) save_checkpoint(run, ++saved, contents(1), 1);
  });
  std::string trouble;
  std::int64_t newest_step = 0;
  // However slowly the writer comes to run.
  for (int i = 0; trouble.empty() && (i < 100 || newest_step < 2); ++i) {
    try {
      const Checkpoint checkpoint = open_newest(run, [&](const std::string& text) { trouble = text; });
      newest_step = std::max(newest_step, checkpoint.step);
      // What a command reads later by its path.
      if (tests::read_text(checkpoint.path + "/config.txt").empty()) trouble = "removed while it was held";
    } catch (const Error& error) {
      trouble = error.what();
    }
  }
  done = true;
  writer.join();
  EXPECT_EQ(trouble, "");
  EXPECT_GT(newest_step, 1);
  save_checkpoint(run, saved + 1, contents(1), 1);
  EXPECT_EQ(checkpoint_steps(run).size(), 1u) << "no lease is left";
}

TEST(Checkpoint, NamesTensorsThatDiffer) {
  const tests::Scratch scratch;
  save_checkpoint(scratch.path("run"), 10, contents(1), 2);
  const Checkpoint checkpoint = newest(scratch.path("run"));
  const auto ignore = [](const std::string&, std::span<const std::byte>) {};
  std::vector<NamedTensor> wanted = contents(1).model;
  wanted[1].type.shape = {4};
  EXPECT_THROW(load_tensors(checkpoint.model, wanted, ignore), Error);
  wanted = contents(1).model;
  wanted.push_back({"model/more", {kernels::DType::f32, {1}}});
  EXPECT_THROW(load_tensors(checkpoint.model, wanted, ignore), Error);
  EXPECT_THROW(load_tensors(checkpoint.model, {contents(1).model[0]}, ignore), Error);
}

}  // namespace
}  // namespace meshloom::trainer
