// Which files in the cache folder are harmless, and which entries are stored.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "hal/cache/disk_cache.h"

namespace meshloom::hal {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "meshloom-cache-XXXXXX").string();
    folder_ = fs::path(mkdtemp(pattern.data())) / "cache";
  }
  ~DiskCacheTest() override { fs::remove_all(folder_.parent_path()); }

  fs::path entry(const std::string& key) const { return folder_ / (hash_text(key) + ".bin"); }
  static std::vector<std::byte> data(std::size_t bytes, int value = 7) { return {bytes, std::byte(value)}; }

  fs::path folder_;
};

TEST_F(DiskCacheTest, WhatIsNoFileInAnEntrysPlaceIsPassedOver) {
  const DiskCache cache(folder_);
  cache.store("bin", "key", data(100));
  ASSERT_EQ(cache.load("bin", "key"), data(100));
  fs::remove(entry("key"));
  fs::create_directory(entry("key"));
  EXPECT_FALSE(cache.load("bin", "key"));
  cache.store("bin", "key", data(100));  // stays cold
  EXPECT_FALSE(cache.load("bin", "key"));
  fs::remove(entry("key"));
  ASSERT_EQ(mkfifo(entry("key").c_str(), 0600), 0);
  EXPECT_FALSE(cache.load("bin", "key"));  // must not wait for a writer
  cache.store("bin", "key", data(100));
  EXPECT_EQ(cache.load("bin", "key"), data(100));
}

TEST_F(DiskCacheTest, ASparseFileAsksForNoMemory) {
  const DiskCache cache(folder_);
  cache.store("bin", "key", data(100));
  fs::resize_file(entry("key"), std::uintmax_t{1} << 40);
  EXPECT_FALSE(cache.load("bin", "key"));
}

TEST_F(DiskCacheTest, LinksAreNotFollowed) {
  const DiskCache cache(folder_);
  cache.store("bin", "key", data(100));
  const fs::path elsewhere = folder_.parent_path() / "elsewhere";
  fs::rename(entry("key"), elsewhere);
  fs::create_symlink(elsewhere, entry("key"));
  EXPECT_FALSE(cache.load("bin", "key"));
  const auto bytes = fs::file_size(elsewhere);
  cache.store("bin", "key", data(5));
  EXPECT_EQ(fs::file_size(elsewhere), bytes);
  EXPECT_EQ(cache.load("bin", "key"), data(5));
}

TEST_F(DiskCacheTest, WhatOthersMayWriteIsNotTaken) {
  const DiskCache cache(folder_);
  cache.store("bin", "key", data(100));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(entry("key")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(chmod(entry("key").c_str(), 0666), 0);
  EXPECT_FALSE(cache.load("bin", "key"));
  ASSERT_EQ(chmod(entry("key").c_str(), 0644), 0);
  EXPECT_TRUE(cache.load("bin", "key"));
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.load("bin", "key"));
  EXPECT_FALSE(cache.load("bin", "key"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("note: the cache folder '" + folder_.string() + "'")) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  cache.store("bin", "other", data(100));
  EXPECT_FALSE(fs::exists(entry("other")));
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_TRUE(cache.load("bin", "key"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(chown(entry("key").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(cache.load("bin", "key"));
}

TEST_F(DiskCacheTest, WhatWasNotUsedForLongestMakesRoom) {
  const DiskCache cache(folder_, 4000);
  const auto age = [&](const std::string& key, int seconds) {
    const timespec times[2] = {{1'000'000'000 - seconds, 0}, {1'000'000'000 - seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, entry(key).c_str(), times, 0), 0);
  };
  for (const char* key : {"a", "b", "c"}) cache.store("bin", key, data(1000));
  age("a", 30);
  age("b", 20);
  age("c", 10);
  EXPECT_TRUE(cache.load("bin", "a"));  // the oldest, but used just now
  std::ofstream(folder_ / "stranger") << std::string(5000, 'x');
  cache.store("bin", "d", data(1000));
  EXPECT_TRUE(cache.load("bin", "a"));
  EXPECT_FALSE(cache.load("bin", "b"));
  EXPECT_TRUE(cache.load("bin", "c"));
  EXPECT_TRUE(cache.load("bin", "d"));
  EXPECT_TRUE(fs::exists(folder_ / "stranger"));
  cache.store("bin", "too large", data(5000));
  EXPECT_FALSE(cache.load("bin", "too large"));
  EXPECT_TRUE(cache.load("bin", "d"));
}

}  // namespace
}  // namespace meshloom::hal
