// The power goes while a run writes: a file system on a loop device is copied as it lies on the disk,
// repaired and mounted again. Needs root; only with all faults (scripts/faults).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "hal/error.h"
#include "tests/faults/small_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

bool shell(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

// An ext4 of its own in a file.
class Disk {
 public:
  Disk(const Scratch& scratch, const std::string& name)
      : image_(scratch.path(name + ".ext4")), folder_(scratch.path(name)) {
    fs::create_directory(folder_);
  }
  ~Disk() { unmount(); }
  bool make() { return shell("truncate -s 48M " + image_ + " && mkfs.ext4 -q -F " + image_) && mount(); }
  bool mount() { return mounted_ = shell("mount -o loop " + image_ + " " + folder_); }
  void unmount() {
    if (mounted_) shell("umount " + folder_);
    mounted_ = false;
  }
  const std::string& image() const { return image_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string image_, folder_;
  bool mounted_ = false;
};

TEST(PowerCut, LosesNothingThatWasSaved) {
  if (!all_faults()) GTEST_SKIP() << "takes minutes: scripts/faults runs it";
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a loop device needs root";
  const Scratch scratch;
  Disk disk(scratch, "disk");
  if (!disk.make()) GTEST_SKIP() << "loop devices cannot be mounted here";
  scratch.file("text", sample_text(6000));
  const std::string run = disk.folder() + "/run";
  const std::string train =
      "train tiny --quiet --sample 0 --device cpu --set sequence=16 --set batch=2 --set "
      "model.decoder.stack.num_layers=1 "
      "--set eval_batches=0 --set checkpoint_every=5 --steps 100000 --data " +
      scratch.path("text") + " --out " + run;
  std::mt19937 random(3);
  constexpr int kCuts = 100;
  int restored = 0;
  for (int cut = 0; cut < kCuts; ++cut) {
    fs::remove_all(run);
    // Stopped at some moment. A checkpoint is saved when the run has gone on to a later step: one that is
    // only seen may not have reached the disk yet.
    const double moment = std::uniform_real_distribution<double>(0.2, 0.9)(random);
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", moment);
    const Outcome outcome = meshloom(
        train + " & pid=$!; sleep " + text + "; kill -STOP $pid; cat " + run +
        "/metrics.jsonl 2>/dev/null | wc -l; ls " + run + " 2>/dev/null; cp --sparse=always " + disk.image() +
        " " + scratch.path("cut.ext4") + "; kill -KILL $pid; kill -CONT $pid; wait $pid");
    long acknowledged = 0, steps_done = 0;
    std::istringstream names(outcome.out);
    names >> steps_done;
    for (std::string name; names >> name;)
      if (long step = 0; std::sscanf(name.c_str(), "step-%ld", &step) == 1 && step < steps_done)
        acknowledged = std::max(acknowledged, step);
    const std::string after = scratch.path("after");
    fs::create_directories(after);
    ASSERT_TRUE(shell("e2fsck -fy " + scratch.path("cut.ext4") + "; [ $? -le 1 ]"));
    ASSERT_TRUE(shell("mount -o loop " + scratch.path("cut.ext4") + " " + after));
    std::string problem;
    std::int64_t step = 0;
    if (acknowledged > 0) {
      try {
        step = trainer::open_newest(after + "/run", [&](const std::string& note) { problem = note; }).step;
      } catch (const Error& error) {
        problem = error.what();
      }
      if (step < acknowledged) problem += " only step " + std::to_string(step);
      const auto steps = losses(after + "/run");
      if (static_cast<std::int64_t>(steps.size()) < step)
        problem += " only " + std::to_string(steps.size()) + " lines of metrics";
    }
    EXPECT_TRUE(shell("umount " + after));
    ASSERT_EQ(problem, "") << "cut " << cut << " after " << moment << " s, saved was step " << acknowledged;
    restored += acknowledged > 0;
  }
  EXPECT_GT(restored, kCuts / 2) << "most cuts are meant to come after a checkpoint";
  std::printf("%d power cuts, %d of them after a checkpoint: all restored with their metrics\n", kCuts,
              restored);
}

}  // namespace
}  // namespace meshloom::tests
