#include "trainer/data/text/find_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "hal/error.h"
#include "trainer/data/text/hub_name.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;

std::string where_of(const std::string& name) { return "data '" + name + "'"; }

void add_folder(const std::string& folder, FoundFiles& into) {
  const std::string where = where_of(folder);
  std::vector<std::string> files;
  std::int64_t hidden = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    if (at->path().filename().string().starts_with('.')) {
      ++hidden;
      at.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) continue;
    if (!at->is_regular_file(ignored))
      throw Error(where, "a folder must contain only files and folders",
                  "'" + path + "', " +
                      (at->is_symlink(ignored) ? "a link that points to no file" : "which is neither"));
    files.push_back(path);
  }
  if (error) throw Error(where, "the folder must be readable", error.message());
  if (hidden > 0)
    into.notes.push_back(
        fmt::format("{}: {} hidden {} left out", where, hidden, hidden == 1 ? "entry" : "entries"));
  if (files.empty()) throw Error(where, "a folder must hold at least one file", "none");
  std::sort(files.begin(), files.end());
  all_jsonl(files, where);
  into.files.insert(into.files.end(), files.begin(), files.end());
}

void add_pattern(const std::string& pattern, FoundFiles& into) {
  const std::string where = where_of(pattern);
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) names.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH) throw Error(where, "the folders of a pattern must be readable");
  if (names.empty()) throw Error(where, "a pattern must match at least one file", "none");
  std::sort(names.begin(), names.end());
  const std::size_t before = into.files.size();
  for (const std::string& name : names) {
    if (std::error_code ignored; fs::is_directory(name, ignored))
      add_folder(name, into);
    else
      into.files.push_back(name);
  }
  all_jsonl({into.files.begin() + static_cast<std::ptrdiff_t>(before), into.files.end()}, where);
}

}  // namespace

FoundFiles find_files(const std::vector<std::string>& names) {
  FoundFiles found;
  for (const std::string& name : names) {
    std::error_code ignored;
    const fs::file_status status = fs::status(name, ignored);
    if (fs::is_directory(status)) {
      add_folder(name, found);
    } else if (!fs::exists(status) && name.find_first_of("*?[") != std::string::npos) {
      add_pattern(name, found);
    } else {
      refuse_hub_data(name);
      found.files.push_back(name);
    }
  }
  return found;
}

bool all_jsonl(const std::vector<std::string>& files, const std::string& where) {
  const auto is_jsonl = [](const std::string& file) { return file.ends_with(".jsonl"); };
  const auto lines = std::find_if(files.begin(), files.end(), is_jsonl),
             other = std::find_if_not(files.begin(), files.end(), is_jsonl);
  if (lines != files.end() && other != files.end())
    throw Error(where, "files must all be .jsonl or all be text", "'" + *lines + "' and '" + *other + "'");
  return lines != files.end();
}

}  // namespace meshloom::trainer
