#include "tests/docs/reference.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <regex>
#include <sstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;

// Calls fn(line, number) for each line outside of fences and of blocks that are indented.
void for_prose(const std::string& text, const std::function<void(const std::string&, int)>& fn) {
  std::istringstream lines(text);
  bool fenced = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```"))
      fenced = !fenced;
    else if (!fenced && !line.starts_with("    "))
      fn(line, number);
  }
}

std::string place(const std::string& page, int line) { return page + ":" + std::to_string(line) + ": "; }

void each_match(const std::string& text, const std::regex& pattern,
                const std::function<void(const std::smatch&)>& fn) {
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) fn(*it);
}

std::set<std::string> headings_of(const std::string& text) {
  std::set<std::string> found;
  for_prose(text, [&](const std::string& line, int) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex(R"(#+ (.*))"))) found.insert(slug(match[1]));
  });
  return found;
}

std::string without_space(const std::string& text) {
  std::string kept;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) kept += c;
  return kept;
}

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(at, begin)) != std::string::npos; begin = end + at.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace

std::string slug(const std::string& heading) {
  std::string name;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      name += '-';
  }
  return name;
}

std::vector<std::string> broken_links(const std::string& root, const std::string& page,
                                      const std::string& text) {
  static const std::regex code("`[^`]*`"), link(R"(\]\(([^)\s]+)\))"),
      source(R"rx((?:src|href|srcset)="([^"]+)")rx");
  std::vector<std::string> found;
  for_prose(text, [&](const std::string& line, int number) {
    const std::string prose = std::regex_replace(line, code, "");
    const auto check = [&](const std::smatch& match) {
      const std::string target = match[1];
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) return;
      const std::size_t at = target.find('#');
      const std::string path = target.substr(0, at);
      const fs::path file =
          path.empty() ? fs::path(root) / page : fs::path(root) / fs::path(page).parent_path() / path;
      if (!fs::exists(file))
        found.push_back(place(page, number) + "links to '" + target + "', which is not there");
      else if (at != std::string::npos && !headings_of(read_text(file.string())).count(target.substr(at + 1)))
        found.push_back(place(page, number) + "links to '" + target + "', a heading that is not there");
    };
    each_match(prose, link, check);
    each_match(prose, source, check);
  });
  return found;
}

std::vector<std::string> missing_paths(const std::string& root, const std::string& page,
                                       const std::string& text) {
  static const std::regex path(
      R"(`((?:hal|kernels|backends|layers|trainer|tests|bench|scripts|docs|examples|cmake)/[A-Za-z0-9_./-]*)`)");
  std::vector<std::string> found;
  for_prose(text, [&](const std::string& line, int number) {
    each_match(line, path, [&](const std::smatch& match) {
      if (!fs::exists(fs::path(root) / match[1].str()))
        found.push_back(place(page, number) + "names '" + match[1].str() + "', which is not there");
    });
  });
  return found;
}

std::vector<std::string> wrong_quotes(const std::string& root, const std::string& page,
                                      const std::string& text) {
  static const std::regex opening(R"(```\w+ (\S+))");
  std::vector<std::string> found;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_match(line, match, opening)) continue;
    const std::string file = match[1];
    if (!fs::exists(fs::path(root) / file)) {
      found.push_back(place(page, number) + "quotes '" + file + "', which is not there");
      continue;
    }
    const std::string whole = without_space(read_text(root + "/" + file));
    std::string part;
    const auto check = [&] {
      if (whole.find(without_space(part)) == std::string::npos)
        found.push_back(place(page, number) + "quotes what does not stand in " + file + ": " + part);
      part.clear();
    };
    while (std::getline(lines, line) && ++number && !line.starts_with("```")) {
      if (without_space(line) == "...")
        check();
      else
        part += line + "\n";
    }
    check();
  }
  return found;
}

std::string joined_literals(const std::string& source) {
  std::string joined;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\\' && i + 1 < source.size() && (source[i + 1] == '"' || source[i + 1] == '\\')) {
      joined += source[++i];
      continue;
    }
    if (source[i] == '"') {
      std::size_t next = i + 1;
      while (next < source.size() && std::isspace(static_cast<unsigned char>(source[next]))) ++next;
      if (next > i + 1 && next < source.size() && source[next] == '"') {
        i = next;
        continue;
      }
    }
    joined += source[i];
  }
  return joined;
}

std::vector<std::string> unknown_messages(const std::string& sources, const std::string& page,
                                          const std::string& text) {
  static const std::regex row(R"(\| `([^`]+)` \|.*)");
  std::vector<std::string> found;
  for_prose(text, [&](const std::string& line, int number) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) return;
    for (const std::string& part : split(match[1], "…"))
      if (sources.find(part) == std::string::npos)
        found.push_back(place(page, number) + "no source says '" + part + "'");
  });
  return found;
}

std::vector<std::string> files_below(const std::string& root, const std::string& folder,
                                     const std::vector<std::string>& endings) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
    const std::string path = fs::relative(entry.path(), root).generic_string();
    if (entry.is_regular_file() &&
        std::any_of(endings.begin(), endings.end(),
                    [&](const std::string& ending) { return path.ends_with(ending); }))
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> variables_of(const std::string& root) {
  std::set<std::string> found;
  const auto collect = [&](const std::string& path, const std::regex& pattern) {
    each_match(read_text(root + "/" + path), pattern,
               [&](const std::smatch& match) { found.insert(match[1]); });
  };
  for (const char* room : {"hal", "kernels", "backends", "layers", "trainer", "bench", "tests"}) {
    for (const std::string& path : files_below(root, room, {".cpp", ".h"}))
      collect(path, std::regex(R"rx((?:getenv|from_environment)\("(MESHLOOM_\w+)")rx"));
    for (const std::string& path : files_below(root, room, {".py"}))
      collect(path, std::regex(R"(environ[^\n]*?(MESHLOOM_\w+))"));
  }
  for (const std::string& path : files_below(root, "scripts", {""}))
    collect(path, std::regex(R"((MESHLOOM_[A-Z0-9_]+))"));
  collect("CMakeLists.txt", std::regex(R"((?:option|set)\((MESHLOOM_\w+))"));
  return found;
}

}  // namespace meshloom::tests
