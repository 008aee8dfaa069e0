// `meshloom train` over several ranks, as a test runs it, and what it leaves.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/mesh/shell.h"

namespace meshloom::tests {

namespace fs = std::filesystem;

class TrainOverRanks : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "meshloom-ranks-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream text(folder_ + "/text.txt");
    for (int line = 0; line < 400; ++line)
      text << "line " << line << " tells of the " << line * line % 97 << " ships that left the harbour\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  using Result = ShellResult;

  // Trains into folder/NAME. `launcher` stands in front of the program.
  Result train(const std::string& name, const std::string& options, const std::string& launcher = "") const {
    // Programs with sanitizers need more on a busy machine.
    return run_in_shell("timeout ${MESHLOOM_TEST_SECONDS:-100} " + launcher +
                        " " MESHLOOM_BINARY " train tiny --data " + folder_ +
                        "/text.txt --batch 8 --sample 0 --device cpu --quiet --out " + folder_ + "/" + name +
                        " " + options);
  }

  std::vector<double> losses(const std::string& name, const std::string& which = "loss") const {
    std::vector<double> losses;
    std::ifstream file(folder_ + "/" + name + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto json = nlohmann::json::parse(line); json.contains(which))
        losses.push_back(json.at(which).get<double>());
    return losses;
  }

  std::string bytes(const std::string& path) const {
    std::ifstream file(folder_ + "/" + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void expect_equal(const std::string& name, const std::string& want, double tolerance = 1e-5) const {
    const std::vector<double> a = losses(name), b = losses(want);
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], tolerance) << name << ", step " << i + 1;
  }

  // Ranks may have written them in other pieces, which an export puts together.
  std::string exported(const std::string& checkpoint) const {
    const std::string to = checkpoint + ".exported", command = MESHLOOM_BINARY " export --checkpoint " +
                                                               folder_ + "/" + checkpoint + " --out " +
                                                               folder_ + "/" + to + " >/dev/null 2>&1";
    if (!fs::exists(folder_ + "/" + to)) {
      EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }
    return bytes(to + "/model.safetensors");
  }

  void expect_same_bits(const std::string& a, const std::string& b) const {
    int files = 0;
    const auto names = [&](const std::string& checkpoint) {
      std::set<std::string> set;
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/" + checkpoint))
        set.insert(entry.path().filename().string());
      return set;
    };
    if (names(a) != names(b)) {
      EXPECT_TRUE(exported(a) == exported(b)) << a << " differs from " << b;
      return;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/" + a)) {
      const std::string file = "/" + entry.path().filename().string();
      if (!file.ends_with(".safetensors")) continue;
      ++files;
      EXPECT_TRUE(bytes(a + file) == bytes(b + file)) << a << file << " differs from " << b << file;
    }
    EXPECT_GE(files, 2) << a;
  }

  std::string folder_;
};

}  // namespace meshloom::tests
