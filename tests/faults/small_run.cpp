#include "tests/faults/small_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "trainer/checkpoint/checkpoint.h"

namespace meshloom::tests {
bool all_faults() { return std::getenv("MESHLOOM_FAULTS_ALL") != nullptr; }

std::vector<int> chosen_points(int count, int few) {
  const int stride = all_faults() ? 1 : std::max(1, count / std::max(few, 1));
  std::vector<int> points;
  for (int i = 0; i < count; i += stride) points.push_back(i);
  if (!points.empty() && points.back() != count - 1) points.push_back(count - 1);
  return points;
}

SmallRun::SmallRun(std::string device) : device_(std::move(device)) {
  scratch_.file("text", sample_text(6000));
}

std::string SmallRun::arguments(const std::string& name, const std::string& more) const {
  return "train tiny --quiet --sample 0 --set sequence=16 --set batch=2 --set "
         "model.decoder.stack.num_layers=1 "
         "--set eval_batches=0 --set checkpoint_every=2 --set keep=2 --steps " +
         std::to_string(kSteps) + " --device " + device_ + " --data " + scratch_.path("text") + " --out " +
         folder(name) + (more.empty() ? "" : " " + more);
}

std::vector<std::string> SmallRun::words(const std::string& name, const std::string& more) const {
  std::vector<std::string> words{MESHLOOM_BINARY};
  std::istringstream text(arguments(name, more));
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

void SmallRun::clear(const std::string& name) const { std::filesystem::remove_all(folder(name)); }

std::string SmallRun::train_whole() {
  const Outcome first = meshloom(arguments("whole"));  // fills the caches of compiled kernels
  if (first.err.find("needs a device") != std::string::npos) return first.err;
  clear("whole");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = meshloom(arguments("whole"));
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses(folder("whole")).size(), static_cast<std::size_t>(kSteps));
  return {};
}

void SmallRun::expect_resumed(const std::string& name, const std::string& what) const {
  const bool resume = has_checkpoint(name);
  if (!resume) clear(name);
  const Outcome outcome = meshloom(arguments(name, resume ? "--resume" : ""));
  EXPECT_EQ(outcome.code, 0) << what << "\n" << outcome.err;
  EXPECT_EQ(outcome.err.find("not whole"), std::string::npos) << what << "\n" << outcome.err;
  expect_same(name, what);
}

void SmallRun::expect_same(const std::string& name, const std::string& what) const {
  EXPECT_EQ(losses(folder(name)), losses(folder("whole"))) << what;
  const auto last = [&](const std::string& run) {
    return trainer::checkpoint_path(folder(run), kSteps) + "/";
  };
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_text(last(name) + file) == read_text(last("whole") + file))
        << what << ": " << file << " differs";
}

bool SmallRun::has_checkpoint(const std::string& name) const { return newest_step(name) > 0; }

int SmallRun::newest_step(const std::string& name) const {
  const std::vector<std::int64_t> steps = trainer::checkpoint_steps(folder(name));
  return steps.empty() ? 0 : static_cast<int>(steps.front());
}

}  // namespace meshloom::tests
