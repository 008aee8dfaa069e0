#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "hal/error.h"
#include "tests/train/binary.h"

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
  load_tensors(checkpoint.model, contents(1).model, [&](const std::string& name, std::span<const std::byte> data) {
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
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.txt", "state.json", "manifest.json"})
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
  EXPECT_THROW(newest(scratch.path("run")), OtherVersion);
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
