// Runs a fuzz target over files, directories of files, and every cut and many single-byte changes of each:
// what a compiler without libFuzzer can do.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

long runs = 0;

void run(const std::string& bytes) {
  // A copy of exactly this size, so that a sanitizer sees reads past the end.
  const std::vector<std::uint8_t> copy(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  ++runs;
}

void run_changed(const std::string& bytes) {
  run(bytes);
  constexpr std::size_t kChanges = 64;
  std::mt19937 random(1);
  for (std::size_t i = 0; i < std::min(kChanges, bytes.size()); ++i) {
    run(bytes.substr(0, i * bytes.size() / kChanges));
    std::string changed = bytes;
    changed[random() % bytes.size()] = static_cast<char>(random());
    run(changed);
  }
}

}  // namespace

int main(int count, char** arguments) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (int i = 1; i < count; ++i) {
    if (!fs::is_directory(arguments[i]))
      files.emplace_back(arguments[i]);
    else
      for (const auto& entry : fs::directory_iterator(arguments[i])) files.push_back(entry.path());
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s FILE|DIRECTORY...\n", arguments[0]);
    return 2;
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 1;
    }
    run_changed({std::istreambuf_iterator<char>(file), {}});
  }
  std::printf("%zu files, %ld inputs\n", files.size(), runs);
}
