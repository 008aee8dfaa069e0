// Damaged runs, driven through the built program: one line each, and what was whole stays whole.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/train/binary.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

class BadCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    scratch.file("text", sample_text(6000));
    const Outcome outcome = meshloom(train("--steps 4"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_TRUE(fs::exists(newest()));
    ASSERT_TRUE(fs::exists(earlier()));
  }
  std::string train(const std::string& more) const {
    return "train tiny --device cpu --sample 0 --set checkpoint_every=2 --set eval_batches=0 --data " +
           scratch.path("text") + " --out " + scratch.path("run") + " " + more;
  }
  std::string newest() const { return scratch.path("run/step-00000004"); }
  std::string earlier() const { return scratch.path("run/step-00000002"); }
  void damage(const std::string& path) {
    std::string text = read_text(path);
    text.at(text.size() / 2) ^= 4;
    std::ofstream(path, std::ios::binary) << text;
  }
  // One line with these words; the earlier checkpoint has not changed.
  void expect_error(const std::string& arguments, const std::vector<std::string>& words,
                    const std::string& before = {}) {
    const std::string kept = read_text(earlier() + "/model.safetensors");
    const Outcome outcome = meshloom(arguments, before);
    EXPECT_NE(outcome.code, 0);
    const std::vector<std::string> lines = outcome.errors();
    ASSERT_EQ(lines.size(), 1u) << outcome.err;
    EXPECT_TRUE(lines[0].starts_with("meshloom: ")) << lines[0];
    for (const std::string& word : words) EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
    EXPECT_EQ(kept, read_text(earlier() + "/model.safetensors"));
  }
  Scratch scratch;
};

TEST_F(BadCheckpoint, TamperedFallsBackAndSaysSo) {
  damage(newest() + "/model.safetensors");
  const Outcome outcome = meshloom(train("--steps 6 --resume"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("note: the checkpoint of step 4 is not whole"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("going on after step 2"), std::string::npos) << outcome.out;
}

TEST_F(BadCheckpoint, AllDamaged) {
  damage(newest() + "/optimizer.safetensors");
  fs::resize_file(earlier() + "/model.safetensors", 100);
  expect_error(train("--steps 6 --resume"), {"at least one must be whole", "checksum"});
}

TEST_F(BadCheckpoint, OneStepDamagedAndNamed) {
  damage(newest() + "/state.json");
  expect_error("generate --prompt x --checkpoint " + newest(), {"state.json", "checksum"});
}

TEST_F(BadCheckpoint, AnotherVersion) {
  std::string text = read_text(newest() + "/manifest.json");
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 7");
  std::ofstream(newest() + "/manifest.json") << text;
  expect_error(train("--steps 6 --resume"), {"manifest.json", "format 1", "format 7"});
}

TEST_F(BadCheckpoint, AnotherConfiguration) {
  expect_error(train("--steps 6 --resume --set batch=2"), {"configuration", "batch: 4 -> 2"});
  expect_error(train("--steps 6 --resume --set seed=1"), {"seed: 0 -> 1"});
}

TEST_F(BadCheckpoint, AnotherText) {
  scratch.file("text", sample_text(7000));
  expect_error(train("--steps 6 --resume"), {"the text it was started with"});
}

TEST_F(BadCheckpoint, ANewRunDoesNotOverwrite) { expect_error(train("--steps 6"), {"--resume goes on", "step 4"}); }

TEST_F(BadCheckpoint, TheFileSizeIsLimited) {
  expect_error(train("--steps 6 --resume --set keep=0"), {"step 6", "earlier checkpoints are as they were"},
               "ulimit -f 100;");
  EXPECT_FALSE(fs::exists(scratch.path("run/step-00000006")));
}

TEST_F(BadCheckpoint, TheDiskIsFull) {
  const std::string disk = scratch.path("disk");
  fs::create_directory(disk);
  if (std::system(("mount -t tmpfs -o size=3m tmpfs " + disk + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no file system may be mounted here";
  const Outcome outcome = meshloom("train tiny --device cpu --sample 0 --steps 6 --set checkpoint_every=1 --set keep=0 "
                                   "--set eval_batches=0 --data " + scratch.path("text") + " --out " + disk + "/run");
  const std::string left = fs::exists(disk + "/run/step-00000001/manifest.json") ? "whole" : "none";
  const Outcome read = meshloom("generate --tokens 1 --prompt x --checkpoint " + disk + "/run");
  EXPECT_EQ(std::system(("umount " + disk).c_str()), 0);
  EXPECT_EQ(outcome.code, 1);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.err;
  EXPECT_NE(outcome.errors()[0].find("No space left"), std::string::npos) << outcome.err;
  EXPECT_EQ(left, "whole");
  EXPECT_EQ(read.code, 0) << read.err;
}

}  // namespace
}  // namespace meshloom::tests
