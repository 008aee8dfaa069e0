// Damaged runs, driven through the built program: one line each, and what was whole stays whole.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/trainer/run/binary.h"
#include "trainer/checkpoint/manifest.h"

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
  // Puts `to` in the place of `from`, and the checksums right.
  void change(const std::string& checkpoint, const std::string& file, const std::string& from,
              const std::string& to) {
    std::string text = read_text(checkpoint + "/" + file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << file;
    text.replace(at, from.size(), to);
    std::ofstream(checkpoint + "/" + file, std::ios::binary) << text;
    trainer::Manifest manifest =
        trainer::parse_manifest(read_text(checkpoint + "/manifest.json"), "manifest");
    for (trainer::FileRecord& record : manifest.files) record = trainer::record_of(checkpoint, record.name);
    std::ofstream(checkpoint + "/manifest.json", std::ios::binary) << trainer::to_json(manifest);
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
  EXPECT_NE(outcome.err.find("note: the checkpoint of step 4 is not whole"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.out.find("continuing after step 2"), std::string::npos) << outcome.out;
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
  text.replace(text.rfind("\"xxh64\": \"") + 10, 4, "0123");  // the checksum of what another version says
  std::ofstream(newest() + "/manifest.json") << text;
  expect_error(train("--steps 6 --resume"), {"manifest.json", "formats 1 and 2", "format 7"});
}

TEST_F(BadCheckpoint, AnotherConfiguration) {
  expect_error(train("--steps 6 --resume --set batch=2"), {"configuration", "batch: 4 -> 2"});
  expect_error(train("--steps 6 --resume --set seed=1"), {"seed: 0 -> 1"});
}

TEST_F(BadCheckpoint, OtherKernels) {
  expect_error(train("--steps 6 --resume --set 'kernels=[KernelRule{op=matmul variant=naive}]'"),
               {"--allow-rounding", "kernels: ", "matmul naive 0 -> "});
  const Outcome allowed = meshloom(
      train("--steps 5 --resume --allow-rounding --set 'kernels=[KernelRule{op=matmul variant=naive}]'"));
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  EXPECT_NE(allowed.err.find("differ by rounding"), std::string::npos) << allowed.err;
}

// As another build of the program, on another processor, would have written it.
TEST_F(BadCheckpoint, AnotherProgramAndAnotherProcessor) {
  change(newest(), "state.json", "\"program\": \"meshloom ", "\"program\": \"meshloom 0.0.9, ");
  change(newest(), "state.json", "\"instructions\": \"", "\"instructions\": \"AVX9000 ");
  expect_error(train("--steps 6 --resume"),
               {"--allow-rounding", "program: 'meshloom 0.0.9, ", "instructions: 'AVX9000 "});
  EXPECT_EQ(meshloom(train("--steps 6 --resume --allow-rounding")).code, 0);
}

// Of a version that wrote less.
TEST_F(BadCheckpoint, AnOldStateIsRead) {
  const std::string state = read_text(newest() + "/state.json");
  const std::size_t at = state.find(",\n \"machine\"");
  ASSERT_NE(at, std::string::npos) << state;
  change(newest(), "state.json", state.substr(at), "\n}\n");
  const Outcome outcome = meshloom(train("--steps 6 --resume"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(BadCheckpoint, ValuesThatAreNotFinite) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    std::string bytes = read_text(newest() + "/" + file), bad = bytes;
    const std::string nan("\x00\x00\xc0\x7f", 4);
    bad.replace(bad.size() - 4, 4, nan);
    if (file[0] == 'm') bad.replace(bad.size() - 12, 4, nan);
    change(newest(), file, bytes, bad);
    const std::string count =
        file[0] == 'm' ? "2 values that are not finite" : "not finite, the first in 'optimizer/";
    expect_error(train("--steps 6 --resume"), {"must start from finite values", count});
    if (file[0] == 'm')
      expect_error("train --init " + newest() + " --device cpu --sample 0 --steps 1 --data " +
                       scratch.path("text") + " --out " + scratch.path("started"),
                   {"must start from finite values", "2 values that are not finite, the first in 'decoder/"});
    change(newest(), file, bad, bytes);
  }
}

TEST_F(BadCheckpoint, AnotherText) {
  scratch.file("text", sample_text(7000));
  expect_error(train("--steps 6 --resume"), {"the text that it was started with"});
}

TEST_F(BadCheckpoint, ANewRunDoesNotOverwrite) {
  expect_error(train("--steps 6"), {"--resume continues", "step 4"});
}

TEST_F(BadCheckpoint, TheFileSizeIsLimited) {
  expect_error(train("--steps 6 --resume --set keep=0"), {"step 6", "earlier checkpoints are unchanged"},
               "ulimit -f 100;");
  EXPECT_FALSE(fs::exists(scratch.path("run/step-00000006")));
}

TEST_F(BadCheckpoint, TheDiskIsFull) {
  const std::string disk = scratch.path("disk");
  fs::create_directory(disk);
  if (std::system(("mount -t tmpfs -o size=3m tmpfs " + disk + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no file system may be mounted here";
  const Outcome outcome = meshloom(
      "train tiny --device cpu --sample 0 --steps 6 --set checkpoint_every=1 --set keep=0 "
      "--set eval_batches=0 --data " +
      scratch.path("text") + " --out " + disk + "/run");
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
