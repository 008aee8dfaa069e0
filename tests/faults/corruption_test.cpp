// Every damage to the newest checkpoint is noticed, and the one before it is taken.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "hal/error.h"
#include "tests/faults/small_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

class Corruption : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_.train_whole(), "");
    newest_ = trainer::checkpoint_path(run_.folder("whole"), SmallRun::kSteps);
    ASSERT_EQ(opened(), SmallRun::kSteps);
  }

  // The step that is opened; 0 where none is.
  int opened() const {
    try {
      return static_cast<int>(trainer::open_newest(run_.folder("whole"), [](const std::string&) {}).step);
    } catch (const Error&) {
      return 0;
    }
  }

  void expect_noticed(const std::string& file, const std::string& damaged, const std::string& what) {
    const std::string path = newest_ + "/" + file, kept = read_text(path);
    if (damaged == kept) return;  // a page that was all zeros
    if (file == "manifest.json" &&
        nlohmann::json::parse(damaged, nullptr, false) == nlohmann::json::parse(kept))
      return;  // white space
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(opened(), SmallRun::kSteps - 2) << file << ", " << what;
    std::ofstream(path, std::ios::binary) << kept;
    ++tried_;
  }

  SmallRun run_;
  std::string newest_;
  int tried_ = 0;
};

TEST_F(Corruption, OfEveryBitOfTheManifest) {
  const std::string text = read_text(newest_ + "/manifest.json");
  for (const int bit : chosen_points(static_cast<int>(text.size()) * 8, 300)) {
    std::string damaged = text;
    damaged[static_cast<std::size_t>(bit / 8)] ^= static_cast<char>(1 << bit % 8);
    expect_noticed("manifest.json", damaged, "bit " + std::to_string(bit));
    if (HasFailure()) FAIL();
  }
  EXPECT_EQ(opened(), SmallRun::kSteps) << "the file is as it was again";
  std::printf("%d bits of the manifest flipped, all noticed\n", tried_);
}

TEST_F(Corruption, OfAnyFile) {
  std::mt19937 random(7);
  const int rounds = all_faults() ? 60 : 4;
  for (const char* file :
       {"manifest.json", "config.txt", "state.json", "model.safetensors", "optimizer.safetensors"}) {
    const std::string text = read_text(newest_ + "/" + file);
    const auto somewhere = [&] {
      return std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
    };
    for (int round = 0; round < rounds; ++round) {
      std::string damaged = text;
      const std::size_t at = somewhere();
      damaged[at] ^= static_cast<char>(1 << round % 8);
      expect_noticed(file, damaged, "a bit of byte " + std::to_string(at));
      expect_noticed(file, text.substr(0, at), "cut at " + std::to_string(at));
      damaged = text;
      damaged.erase(at, 1);
      expect_noticed(file, damaged, "byte " + std::to_string(at) + " left out");
      damaged = text;
      damaged.insert(at, 1, static_cast<char>(round));
      expect_noticed(file, damaged, "a byte put in at " + std::to_string(at));
      const std::size_t page = at / 4096 * 4096, length = std::min<std::size_t>(4096, text.size() - page);
      damaged = text;
      damaged.replace(page, length, length, '\0');
      expect_noticed(file, damaged, "the page at " + std::to_string(page) + " in zeros");
      if (HasFailure()) FAIL();
    }
    fs::rename(newest_ + "/" + file, newest_ + "/aside");
    EXPECT_EQ(opened(), SmallRun::kSteps - 2) << file << " is missing";
    fs::rename(newest_ + "/aside", newest_ + "/" + file);
    ++tried_;
  }
  std::printf("%d damages of 5 files, all noticed\n", tried_);
}

}  // namespace
}  // namespace meshloom::tests
