#include "tests/docs/page.h"

#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace meshloom::tests {
namespace {

// Not run, and why.
const std::vector<std::pair<std::regex, std::string>> kSkipped{
    {std::regex("^scripts/"),
     "installs packages, builds, or takes minutes; that the script exists is checked"},
    {std::regex("^ctest "), "runs this test"},
    {std::regex("build/tests/"), "runs a test program, for minutes or hours"},
};

// What makes a command short, in order: where the first matches, the second is put in its place.
struct Substitution {
  std::regex pattern;
  std::string text;
};
const std::vector<Substitution> kSubstitutions{
    // A model's size changes nothing about how a command is written.
    {std::regex(
         R"((\btrain|\btrain_step|\bbench mesh|\bbench decode|\bbench serve|\bbench estimate|\btune|\bcalibrate|--model) (smollm2-135m|gpt2-124m|byte-llama-10m)\b)"),
     "$1 tiny"},
    // Short runs.
    {std::regex(R"( --(steps|epochs) [\d.]+)"), ""},
    {std::regex(R"(\bmeshloom train\b(?!.*--help)(.*))"),
     "meshloom train$1 --steps 1 --sample 2 --set eval_batches=1"},
    {std::regex(R"(\bmeshloom bench (train_step|mesh)\b(.*))"), "meshloom bench $1$2 --steps 1"},
    {std::regex(R"(\bmeshloom bench (decode|serve)\b(.*))"), "meshloom bench $1$2 --rounds 1"},
    {std::regex(R"(\bmeshloom generate\b(.*))"), "meshloom generate$1 --tokens 2"},
    // A server runs until it is stopped: here, once it is ready.
    {std::regex(R"((\bmeshloom serve\b.*) --port \d+)"), "$1"},
    {std::regex(R"(^(.*\bmeshloom serve\b(?!.*--help).*))"),
     "rm -f .ready; $1 --port 0 >.ready 2>&1 & until grep -qs Serving .ready; do kill -0 $! || break; sleep "
     "0.05; done; "
     "kill -TERM $!; wait $!; code=$?; cat .ready; exit $code"},
    {std::regex(R"(--budget \w+)"), "--budget 1s"},
    // A test needs no Python.
    {std::regex(R"(--reward 'python3 [^']+')"), "--reward 'sh reward.sh'"},
    // Timings are not the point: a busy machine must not look like a regression.
    {std::regex(R"(\bbench all\b)"), "bench softmax"},
    {std::regex(R"(\bbench matmul (?!.*--shapes)(.*))"), "bench matmul --shapes 64x64x64 $1"},
    {std::regex(R"(--max-regression \S+)"), "--max-regression 1000%"},
    {std::regex(
         R"(\bmeshloom bench (?!train_step|decode|serve|mesh|plans|tune|calibrate|predict|estimate)(.*))"),
     "meshloom bench $1 --time-per-case 0.01"},
};

bool runs(const std::string& text) {
  static const std::regex program(R"(^(build/)?meshloom |^scripts/|^ctest |^(MESHLOOM|RADV)_[A-Z_]+=)");
  return std::regex_search(text, program);
}

// Where the shell takes a comment to begin, or npos; `open` is set when a quotation is not closed.
std::size_t comment(const std::string& text, bool& open) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote) {
      if (text[i] == quote) quote = 0;
    } else if (text[i] == '\'' || text[i] == '"') {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == ' ')) {
      open = false;
      return i;
    }
  }
  open = quote != 0;
  return std::string::npos;
}

PageCommand command_of(const std::string& text, int line) {
  bool open = false;
  const std::size_t at = comment(text, open);
  PageCommand command{text.substr(0, at), 0, line};
  while (command.text.ends_with(' ')) command.text.pop_back();
  std::smatch match;
  const std::string said = at == std::string::npos ? "" : text.substr(at);
  if (std::regex_search(said, match, std::regex(R"(exits with (\d+))"))) command.code = std::stoi(match[1]);
  return command;
}

int shell(const std::string& directory, const std::string& command, std::string& said) {
  const std::string file = directory + "/.said";
  const std::string all = "cd '" + directory + "' && PATH=\"$PWD/build:$PATH\" && { " + command + "\n} >'" +
                          file + "' 2>&1 </dev/null";
  const int status = std::system(all.c_str());
  said = read_text(file);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// A directory as someone has it who follows the pages: what a command reads and does not find yet is made.
class Workplace {
 public:
  Workplace() {
    std::filesystem::create_directory(scratch_.path("build"));
    std::filesystem::create_symlink(MESHLOOM_BINARY, scratch_.path("build/meshloom"));
    for (const char* text : {"text.txt", "a.txt", "b.txt"}) scratch_.file(text, sample_text(6000));
    std::string pairs;
    for (int i = 0; i < 40; ++i)
      pairs +=
          R"({"prompt": "Where does it run?", "completion": "Under a bridge.", "question": "Where?", "answer": "There."})"
          "\n";
    scratch_.file("pairs.jsonl", pairs);
    const std::string user = R"({"role": "user", "content": "Who?"})";
    std::string chats;
    for (int i = 0; i < 40; ++i)
      chats += R"({"messages": [)" + user + R"(, {"role": "assistant", "content": "A river."}]})" + "\n";
    scratch_.file("chats.jsonl", chats);
    std::string preferences;
    for (int i = 0; i < 40; ++i)
      preferences += R"({"prompt": "Who?", "chosen": " A river.", "rejected": " A hill."})"
                     "\n";
    scratch_.file("preferences.jsonl", preferences);
    std::string prompts;
    for (int i = 0; i < 8; ++i)
      prompts += R"({"prompt": "Who?", "answer": "A river."})"
                 "\n";
    scratch_.file("prompts.jsonl", prompts);
    scratch_.file("reward.sh", "while read -r line; do echo ${#line}; done\n");
    scratch_.file("messages.json", "[" + user + "]\n");
    scratch_.file("keys.txt", "a-key\n");
    std::filesystem::create_directory_symlink(MESHLOOM_SOURCE_DIR "/examples", scratch_.path("examples"));
  }

  int run(const std::string& command, std::string& said) {
    for (const auto& [path, maker] : makers())
      if (std::regex_search(command, std::regex("((--init|--draft|checkpoint|--like|import|--config|--"
                                                "baseline|plans|serve) |--adapter \\w+=)" +
                                                path + "\\b")) &&
          !std::filesystem::exists(scratch_.path(path))) {
        const int code = run(maker, said);
        if (code != 0) return code;
      }
    return shell(scratch_.path(), command, said);
  }

 private:
  static const std::vector<std::pair<std::string, std::string>>& makers() {
    static const std::string train =
        "meshloom train tiny --data text.txt --device cpu --steps 1 --sample 0 --quiet --out ";
    static const std::vector<std::pair<std::string, std::string>> all{
        {"run", train + "run"},
        {"tuned", train + "tuned"},
        {"small", train + "small"},
        {"lora", train + "lora --modify 'Adapt{with=Lora{rank=8}}'"},
        {"SmolLM2-135M", train + ".run && meshloom export --checkpoint .run --out SmolLM2-135M"},
        {"model.gguf", train + ".gguf && meshloom export --checkpoint .gguf --out model.gguf --format gguf"},
        {"smol", "meshloom import SmolLM2-135M --out smol"},
        {"my.recipe", "meshloom config tiny >my.recipe"},
        {"published_steps.csv", "for i in 1 2 3; do cat " MESHLOOM_SOURCE_DIR
                                "/tests/fuzz/seeds/published_runs/two_rows.csv; done | "
                                "awk 'NR == 1 || !/^source,/' >published_steps.csv"},
        {"before.json", "meshloom bench softmax --time-per-case 0.01 --json before.json"},
    };
    return all;
  }

  Scratch scratch_;
};

bool device_is_here(const std::string& backend) {
  static std::map<std::string, bool> known;
  const auto it = known.find(backend);
  if (it != known.end()) return it->second;
  return known[backend] = meshloom("devices --no-test --device " + backend + ":0").code == 0;
}

// "" = it can run here.
std::string lacking(const std::string& command) {
  std::smatch match;
  if (std::regex_search(command, match, std::regex(R"(--(?:device|selector) (opencl|vulkan))")) &&
      !device_is_here(match[1]))
    return "no device " + match[1].str();
  // Compilers of GPUs' OpenCL drivers, which scripts/inspect-gpu unpacks.
  if (std::regex_search(command, match, std::regex(R"(--device opencl:(dg2|bmg|sm_\d+))"))) {
    const std::string compiler = match[1].str().starts_with("sm_") ? "ptxas" : "ocloc";
    if (std::system(("command -v " + compiler + " >/dev/null 2>&1").c_str()) != 0) return "no " + compiler;
  }
  if (command.starts_with("RADV_FORCE_FAMILY=") &&
      !std::filesystem::exists("/usr/share/vulkan/icd.d/radeon_icd.x86_64.json"))
    return "no driver RADV";
  return {};
}

}  // namespace

std::vector<PageBlock> blocks_of(const std::string& page) {
  std::vector<PageBlock> blocks;
  std::istringstream lines(page);
  std::string line, pending;
  int number = 0, begun = 0;
  bool inside = false, fenced = false;
  while (std::getline(lines, line)) {
    ++number;
    bool open = false;
    if (pending.empty() && line.starts_with("```")) fenced = !fenced;
    if (fenced) {
      inside = false;
      continue;
    }
    if (!pending.empty()) {
      pending += "\n" + line;
    } else if (line.starts_with("    ") && runs(line.substr(4))) {
      pending = line.substr(4);
      begun = number;
      if (!inside) blocks.push_back({number, {}});
      inside = true;
    } else {
      inside = inside && (line.starts_with("    "));
      continue;
    }
    comment(pending, open);
    if (open) continue;
    blocks.back().commands.push_back(command_of(pending, begun));
    pending.clear();
  }
  if (!pending.empty())
    blocks.back().commands.push_back(command_of(pending, begun));  // the shell will say what is open
  return blocks;
}

std::string comment_of(const std::string& path) {
  const std::string text = read_text(path);
  const std::string first = text.substr(0, text.find('\n'));
  if (path.ends_with(".jsonl")) return nlohmann::json::parse(first).value("comment", "");
  std::string page;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("#");)
    page += (line.size() > 2 ? line.substr(2) : "") + "\n";
  return page;
}

PageBlock examples_of(const std::string& help) {
  PageBlock block;
  std::istringstream lines(help);
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t at = line.find_first_not_of(' ');
    const std::string text = at == std::string::npos ? "" : line.substr(at);
    inside = inside || text.starts_with("Example");
    if (inside && runs(text)) block.commands.push_back(command_of(text, number));
  }
  return block;
}

std::string shortened(const std::string& command) {
  for (const auto& [pattern, reason] : kSkipped)
    if (std::regex_search(command, pattern)) return {};
  std::string text = command;
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const Substitution& substitution : kSubstitutions)
    text = std::regex_replace(text, substitution.pattern, substitution.text,
                              std::regex_constants::format_first_only);
  // Shapes: no dimension beyond 64.
  std::smatch match;
  if (std::regex_search(text, match, std::regex(R"(--shapes (\S+))")))
    text = match.prefix().str() + std::regex_replace(match.str(), std::regex(R"(\d{3,})"), "64") +
           match.suffix().str();
  return text;
}

std::vector<std::string> problems_of(const PageBlock& block) {
  std::vector<std::string> problems;
  Workplace here;
  for (const PageCommand& command : block.commands) {
    const auto fail = [&](const std::string& what) {
      problems.push_back("line " + std::to_string(command.line) + ", '" + command.text + "': " + what);
    };
    if (command.text.starts_with("scripts/")) {
      const std::string script = MESHLOOM_SOURCE_DIR "/" + command.text.substr(0, command.text.find(' '));
      if (!std::filesystem::exists(script)) fail("there is no such script");
    }
    const std::string text = shortened(command.text);
    if (text.empty() || !lacking(text).empty()) continue;
    std::string said;
    const int code = here.run(text, said);
    // A peer that is not installed is said, with its package.
    const bool peer = text.find("--vs ") != std::string::npos && code == 1 &&
                      said.find("must be installed (package ") != std::string::npos;
    if (code != command.code && !peer)
      fail("exits with " + std::to_string(code) + " where " + std::to_string(command.code) +
           " is stated (run as '" + text + "'): " + last_line(said));
  }
  return problems;
}

std::set<std::string> options_in(const std::string& page) {
  // Of gtest, ctest, the scripts, cmake, pkg-config.
  static const std::set<std::string> others{"--gtest_filter", "--test-dir", "--bench",  "--tests",
                                            "--golden",       "--fix",      "--preset", "--install",
                                            "--static",       "--run",      "--parts"};
  static const std::regex option(R"((^|[^\w-])(--[a-z][a-z_-]+))");
  std::string text, line;
  std::istringstream lines(page);
  for (bool fenced = false; std::getline(lines, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    if (!fenced) text += line + "\n";
  }
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it)
    if (!others.count((*it)[2])) found.insert((*it)[2]);
  return found;
}

}  // namespace meshloom::tests
