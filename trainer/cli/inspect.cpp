#include "trainer/cli/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>

#include "hal/error.h"
#include "kernels/core/call_parser.h"
#include "trainer/cli/command.h"
#include "trainer/cli/inspect_ranking.h"
#include "trainer/cli/inspect_text.h"
#include "trainer/execute/inspect_call.h"
#include "trainer/execute/rank_candidates.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

using InspectJson = nlohmann::ordered_json;

struct NamedCall {
  std::string text;  // as it was typed
  const kernels::Contract* contract = nullptr;
  kernels::Case call;
  hal::ShaderModule shader = {};  // without a contract
};

// Whether a dtype stands there, rather than a shape or a call, even if it is one that there is not.
bool names_dtype(const std::string& word) {
  return !word.empty() && std::isalpha(static_cast<unsigned char>(word[0])) &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// The word at the beginning, and the rest.
std::pair<std::string, std::string> first_word(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  const std::size_t end = text.find_first_of(" \t", begin);
  if (end == std::string::npos) return {text.substr(begin), ""};
  const std::size_t rest = text.find_first_not_of(" \t", end);
  return {text.substr(begin, end - begin), rest == std::string::npos ? "" : text.substr(rest)};
}

std::string read_binary(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file || bytes.empty())
    throw Error("'" + path + "'", "must be a file that can be read and is not empty",
                errno != 0 ? std::strerror(errno) : "no bytes");
  return bytes;
}

std::uint32_t number_of(const std::string& text, const std::string& where) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(where, "constants and subgroup are whole numbers of 32 bits", "'" + text + "'");
  return value;
}

// What follows "spirv": "FILE", then "ID=VALUE", "subgroup=N" and "name=NAME" in any order.
NamedCall parse_shader(const std::string& text, const std::string& where) {
  auto [path, rest] = first_word(text);
  if (path.empty()) throw Error(where, "spirv must name a file", "none");
  NamedCall named;
  hal::ShaderModule& shader = named.shader;
  shader.name = std::filesystem::path(path).stem().string();
  while (!rest.empty()) {
    std::string word;
    std::tie(word, rest) = first_word(rest);
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos || key.empty())
      throw Error(where, "behind the file come ID=VALUE of constants, subgroup=N and name=NAME",
                  "'" + word + "'");
    const std::string value = word.substr(equals + 1);
    if (key == "name")
      shader.name = value;
    else if (key == "subgroup")
      shader.subgroup = number_of(value, where);
    else if (!shader.constants.emplace(number_of(key, where), number_of(value, where)).second)
      throw Error(where, "every constant is given once", "'" + key + "' again");
  }
  const std::string bytes = read_binary(path);
  if (bytes.size() % 4 != 0)
    throw Error("'" + path + "'", "must be SPIR-V, in words of 4 bytes",
                std::to_string(bytes.size()) + " bytes");
  shader.spirv.resize(bytes.size() / 4);
  std::memcpy(shader.spirv.data(), bytes.data(), bytes.size());
  named.text = "spirv " + shader.name;
  return named;
}

// "OP SHAPE", "OP DTYPE SHAPE" or "OP CALL", or a shader.
std::vector<NamedCall> parse(const kernels::Catalog& catalog, const std::string& text, const std::string& op,
                             const std::string& where) {
  auto [name, rest] = op.empty() ? first_word(text) : std::pair(op, text);
  if (name == "spirv") return {parse_shader(rest, where)};
  const kernels::Contract& contract = catalog.contract(name);
  hal::DType dtype = hal::DType::f32;
  if (const auto [word, shape] = first_word(rest); names_dtype(word)) {
    dtype = hal::dtype_from_string(word);
    rest = shape;
  }
  std::vector<NamedCall> calls;
  for (kernels::ParsedCall& one : kernels::parse_calls(contract, rest, dtype, where)) {
    std::string typed = one.shape.empty() ? rest : std::string(hal::to_string(dtype)) + " " + one.shape;
    calls.push_back({name + " " + typed, &contract, std::move(one.call), {}});
  }
  return calls;
}

std::vector<NamedCall> all_calls(const kernels::Catalog& catalog, const InspectOptions& options) {
  std::vector<NamedCall> calls;
  const auto add = [&](const std::string& text, const std::string& where) {
    for (NamedCall& one : parse(catalog, text, options.op, where)) calls.push_back(std::move(one));
  };
  for (const std::string& text : options.calls) add(text, "--inspect");
  if (options.file.empty()) return calls;
  std::istringstream file(read_stream(options.file, "'" + options.file + "'"));
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    add(line, fmt::format("{}:{}", options.file, number));
  }
  return calls;
}

std::string loads_text(const std::map<int, std::int64_t>& loads) {
  std::string text;
  for (auto one = loads.rbegin(); one != loads.rend(); ++one)
    text += fmt::format("{}{} x {} B", text.empty() ? "" : ", ", one->second, one->first);
  return text.empty() ? "none" : text;
}

std::string specialization(const hal::ExecutableSpec& spec) {
  std::string text;
  for (const hal::Define& define : spec.defines) text += " " + define.name + "=" + define.value;
  return text;
}

void print_loop(const char* name, const hal::LoopInspection& loop) {
  fmt::print("    {:<10} {}: {} instructions, {:.0f} cycles of issue, of which {:.0f} % multiply{}\n", name,
             loop.label, loop.instructions, loop.issue_cycles, 100 * loop.multiply_share(),
             loop.guessed ? "; loops inside it count once" : "");
  if (loop.local_cycles.value_or(0) > 0 && loop.multiply_cycles > 0)
    fmt::print("               local memory takes {:.0f} cycles, and so allows {:.0f} %\n",
               *loop.local_cycles, 100 * *loop.local_bound());
}

// "45", or "84 / 15*" for the loop of the products and the main loop; the star marks loops inside that count once.
std::string share_text(const hal::Inspection& found) {
  const auto text = [](const hal::LoopInspection& loop) {
    return loop.multiply_cycles > 0
               ? fmt::format("{:.0f}{}", 100 * loop.multiply_share(), loop.guessed ? "*" : "")
               : std::string("-");
  };
  const hal::LoopInspection &main = *found.main_loop(), &product = *found.product_loop();
  return &main == &product ? text(main) : text(product) + " / " + text(main);
}

std::string bound_text(const hal::LoopInspection& loop) {
  return loop.multiply_cycles > 0 && loop.local_bound() ? fmt::format("{:.0f}", 100 * *loop.local_bound())
                                                        : "-";
}

void print(const InspectedCall& call) {
  std::string params;
  for (const auto& [name, value] : call.choice.params) params += fmt::format(" {}={}", name, value);
  fmt::print("{}\n", call.call);
  if (call.choice.variant) fmt::print("  {}{}\n", call.choice.variant->name, params);
  if (call.host_calls > 0) fmt::print("  {} part(s) of it run on the host\n", call.host_calls);
  for (const InspectedPipeline& one : call.pipelines) {
    const hal::Inspection& found = one.found;
    fmt::print("  {}{}\n", one.spec.kernel, specialization(one.spec));
    const std::string groups =
        one.dispatches > 0 ? fmt::format("{}x{}x{} workgroups", one.groups[0], one.groups[1], one.groups[2])
                           : "workgroups";
    fmt::print("    dispatch   {} of {}x{}x{}, waves of {}{}\n", groups, one.spec.workgroup[0],
               one.spec.workgroup[1], one.spec.workgroup[2], found.subgroup,
               one.dispatches > 1 ? fmt::format(", {} times", one.dispatches) : "");
    fmt::print("    compiled   registers {}, spilled {}, scratch {}, local {}, waves {}, code {}\n",
               or_dash(found.registers), or_dash(found.spilled), or_dash(found.scratch_bytes, " B"),
               or_dash(found.local_bytes, " B"), or_dash(found.waves), or_dash(found.code_bytes, " B"));
    const hal::LoopInspection* loop = found.main_loop();
    if (!loop) {
      fmt::print("    loops      not read: {}\n", found.why_no_loops);
      continue;
    }
    print_loop("main loop", *loop);
    if (const hal::LoopInspection* product = found.product_loop(); product != loop)
      print_loop("products", *product);
    fmt::print("    loads      device {}; local {}; scratch {}\n", loads_text(loop->device_loads),
               loads_text(loop->local_loads), loop->scratch_accesses);
    if (loop->waits)
      fmt::print("    waits      {} for device memory, of which {} with no product behind the load\n",
                 *loop->waits, or_dash(loop->exposed_waits));
  }
}

// A '|' would end the cell.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

void print_markdown_head() {
  fmt::print(
      "| call | kernel | wave | registers | spilled | scratch B | local B | waves | code B | multiply % | "
      "local bound % | "
      "device loads | local loads | waits (exposed) |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

void print_markdown(const NamedCall& named, const InspectedCall& call) {
  for (const InspectedPipeline& one : call.pipelines) {
    const hal::Inspection& found = one.found;
    const hal::LoopInspection* loop = found.main_loop();
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} |", cell(named.text), one.spec.kernel,
               found.subgroup, or_dash(found.registers), or_dash(found.spilled), or_dash(found.scratch_bytes),
               or_dash(found.local_bytes), or_dash(found.waves), or_dash(found.code_bytes));
    if (!loop)
      fmt::print(" - | - | - | - | - |\n");
    else
      fmt::print(" {} | {} | {} | {} | {} |\n", share_text(found), bound_text(*found.product_loop()),
                 loads_text(loop->device_loads), loads_text(loop->local_loads),
                 loop->waits ? fmt::format("{} ({})", *loop->waits, or_dash(loop->exposed_waits)) : "-");
  }
}

template <typename T>
InspectJson or_null(const std::optional<T>& value) {
  return value ? InspectJson(*value) : InspectJson(nullptr);
}

InspectJson loads_json(const std::map<int, std::int64_t>& loads) {
  InspectJson json = InspectJson::object();
  for (const auto& [bytes, count] : loads) json[std::to_string(bytes)] = count;
  return json;
}

InspectJson to_json(const hal::LoopInspection& loop) {
  return {{"label", loop.label},
          {"depth", loop.depth},
          {"innermost", loop.innermost},
          {"main", loop.main},
          {"product", loop.product},
          {"guessed", loop.guessed},
          {"instructions", loop.instructions},
          {"issue_cycles", loop.issue_cycles},
          {"multiply_cycles", loop.multiply_cycles},
          {"multiply_share", loop.multiply_share()},
          {"local_cycles", or_null(loop.local_cycles)},
          {"local_bound", or_null(loop.local_bound())},
          {"device_loads", loads_json(loop.device_loads)},
          {"local_loads", loads_json(loop.local_loads)},
          {"scratch_accesses", loop.scratch_accesses},
          {"waits", or_null(loop.waits)},
          {"exposed_waits", or_null(loop.exposed_waits)}};
}

InspectJson to_json(const NamedCall& named, const InspectedCall& call, const hal::DeviceInfo& device) {
  InspectJson pipelines = InspectJson::array();
  for (const InspectedPipeline& one : call.pipelines) {
    const hal::Inspection& found = one.found;
    InspectJson defines = InspectJson::object(), statistics = InspectJson::object(),
                loops = InspectJson::array();
    for (const hal::Define& define : one.spec.defines) defines[define.name] = define.value;
    for (const hal::DriverStatistic& statistic : found.statistics)
      statistics[statistic.name] = statistic.value;
    for (const hal::LoopInspection& loop : found.loops) loops.push_back(to_json(loop));
    pipelines.push_back({{"kernel", one.spec.kernel},
                         {"defines", defines},
                         {"workgroup", one.spec.workgroup},
                         {"groups", one.groups},
                         {"dispatches", one.dispatches},
                         {"subgroup", found.subgroup},
                         {"registers", or_null(found.registers)},
                         {"spilled", or_null(found.spilled)},
                         {"scratch_bytes", or_null(found.scratch_bytes)},
                         {"local_bytes", or_null(found.local_bytes)},
                         {"code_bytes", or_null(found.code_bytes)},
                         {"waves", or_null(found.waves)},
                         {"statistics", statistics},
                         {"loops", loops}});
    if (!found.why_no_loops.empty()) pipelines.back()["why_no_loops"] = found.why_no_loops;
  }
  return {{"call", call.call},
          {"typed", named.text},
          {"device", device.id},
          {"name", device.name},
          {"driver", device.driver},
          {"profile", device.profile.name},
          {"variant", call.choice.variant ? InspectJson(call.choice.variant->name) : InspectJson(nullptr)},
          {"params", call.choice.params},
          {"host_calls", call.host_calls},
          {"pipelines", pipelines}};
}

void write_files(const std::string& folder, const NamedCall& named, const InspectedCall& call) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  std::string stem;
  for (char c : named.text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '=';
    if (plain)
      stem += c;
    else if (!stem.empty() && stem.back() != '-')
      stem += '-';
  }
  stem.resize(std::min<std::size_t>(stem.size(), 120));
  for (std::size_t i = 0; i < call.pipelines.size(); ++i)
    for (const hal::InspectedFile& file : call.pipelines[i].found.files) {
      const std::string path =
          fmt::format("{}/{}.{}.{}{}", folder, stem, i, call.pipelines[i].spec.kernel, file.suffix);
      errno = 0;
      std::ofstream out(path, std::ios::binary);
      if (!out.write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size())) || !out.flush())
        throw Error("'" + path + "'", "must be a file that can be written", std::strerror(errno));
    }
}

// What is printed at once, and returned for JSON.
InspectJson rank(const Registries& registries, hal::Device& device, const NamedCall& named,
                 const InspectOptions& options) {
  if (!named.contract) throw Error(named.text, "a call of an op is ranked", "a shader of another project");
  if (named.contract->view) throw Error(named.text, "must be an op that runs a kernel", "a view");
  const std::vector<kernels::TensorType> outputs = named.contract->infer(named.call.inputs, named.call.attrs);
  const std::vector<Candidate> all =
      candidates(registries.catalog, device.info(),
                 {named.contract->name, named.call.inputs, outputs, named.call.attrs});
  if (all.empty()) throw Error(named.text, "a variant must fit on " + device.info().name, "none");
  const std::vector<RankedCandidate> ranked = rank_candidates(device, *named.contract, named.call, all);
  if (!options.json)
    fmt::print("{}",
               options.markdown ? ranking_markdown(named.text, ranked) : ranking_text(named.text, ranked));
  return ranking_json(named.text, ranked);
}

InspectedCall inspect(const Registries& registries, hal::Device& device, const NamedCall& named,
                      const InspectOptions& options) {
  if (named.contract)
    return inspect_call(registries.catalog, device, *named.contract, named.call, options.variant,
                        options.fused);
  auto* inspector = dynamic_cast<hal::ShaderInspector*>(&device);
  if (!inspector) throw Error(named.text, "shaders in SPIR-V need a device of vulkan", device.info().id);
  hal::InspectedShader shader = inspector->inspect_shader(named.shader);
  InspectedCall call;
  call.call = named.text;
  InspectedPipeline one;
  one.spec.kernel = named.shader.name;
  one.spec.workgroup = shader.workgroup;
  one.spec.subgroup = named.shader.subgroup;
  for (const auto& [id, value] : named.shader.constants)
    one.spec.defines.push_back({std::to_string(id), std::to_string(value)});
  one.found = std::move(shader.found);
  call.pipelines.push_back(std::move(one));
  return call;
}

}  // namespace

int inspect_kernels(const Registries& registries, const InspectOptions& options) {
  const std::vector<NamedCall> calls = all_calls(registries.catalog, options);
  if (calls.empty())
    throw Error(options.file.empty() ? "--inspect" : "'" + options.file + "'",
                "must name a call, such as 'matmul f16 4096x4096x4096'", "none");
  const std::unique_ptr<hal::Device> device =
      registries.devices.open_to_inspect(options.device.empty() ? "vulkan" : options.device);
  if (!options.as.empty()) device->run_as(hal::find_profile(options.as));
  const hal::DeviceInfo& info = device->info();
  InspectJson rows = InspectJson::array();
  bool all_inspected = true;
  if (!options.json)
    fmt::print("{}: {}, {}, as {}; nothing runs\n\n", info.id, info.name, info.driver, info.profile.name);
  if (options.markdown && !options.rank) print_markdown_head();
  for (const NamedCall& named : calls) {
    try {
      if (options.rank) {
        rows.push_back(rank(registries, *device, named, options));
        continue;
      }
      const InspectedCall found = inspect(registries, *device, named, options);
      if (!options.folder.empty()) write_files(options.folder, named, found);
      if (options.json)
        rows.push_back(to_json(named, found, info));
      else if (options.markdown)
        print_markdown(named, found);
      else
        print(found);
    } catch (const Error& error) {
      if (calls.size() == 1) throw;
      say_error(error.what());
      all_inspected = false;
    }
  }
  if (options.json) fmt::print("{}\n", rows.dump(2));
  return all_inspected ? 0 : 1;
}

}  // namespace meshloom::trainer
