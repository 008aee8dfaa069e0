#include "trainer/interop/tensor_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "hal/error.h"
#include "trainer/io/file.h"
#include "trainer/io/float_convert.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

// Tensor -> file, from the index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string where = "'" + path + "'";
  const nlohmann::json json = parse_json(read_file(path, where), where, "the index", 4);
  const auto it = json.is_object() ? json.find("weight_map") : json.end();
  if (it == json.end() || !it->is_object()) throw Error(where, "must have an object weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : it->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      throw Error(where + ", weight_map " + shown(tensor), "must name a file of the same directory",
                  shown_json(file));
    files[tensor] = name;
  }
  if (files.empty()) throw Error(where, "weight_map must name at least one tensor", "none");
  return files;
}

// The shards of a directory without an index, in order; empty = there are none.
std::vector<std::string> shards_of(const std::string& directory) {
  static const std::regex pattern("model-([0-9]{5})-of-([0-9]{5})\\.safetensors");
  std::set<std::string> names;
  std::string count;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(directory, unreadable)) {
    const std::string name = entry.path().filename().string();
    std::smatch parts;
    if (!std::regex_match(name, parts, pattern)) continue;
    if (!count.empty() && parts[2] != count)
      throw Error("'" + directory + "'", "without an index, all shards must be of one model",
                  "'" + *names.begin() + "' and '" + name + "'");
    count = parts[2];
    names.insert(name);
  }
  if (names.empty()) return {};
  for (std::size_t i = 1; i <= std::stoul(count); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{}.safetensors", i, count);
    if (!names.count(name))
      throw Error("'" + directory + "'", "without an index, every shard up to the last must exist",
                  "no '" + name + "'");
  }
  if (names.size() != std::stoul(count))
    throw Error("'" + directory + "'", "shards must be numbered from 1 to " + count,
                "'" + *names.begin() + "' among them");
  return {names.begin(), names.end()};
}

}  // namespace

TensorFiles::TensorFiles(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string single = directory + "/model.safetensors", index = single + ".index.json";
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    files_.emplace_back(single);
    for (const StoredTensor& tensor : files_.front().tensors())
      entries_[tensor.name] = {&files_.front(), &tensor};
    if (entries_.empty()) throw Error("'" + single + "'", "must hold at least one tensor", "none");
    return;
  }
  if (!fs::exists(index, ignored)) {
    const std::vector<std::string> shards = shards_of(directory);
    if (shards.empty())
      throw Error("'" + directory + "'",
                  "must hold model.safetensors, model.safetensors.index.json or shards model-00001-of-...",
                  fs::exists(directory + "/pytorch_model.bin", ignored)
                      ? "pytorch_model.bin only, which is not read: save it as safetensors"
                      : "none of them");
    files_.reserve(shards.size());  // entries_ points into it
    for (const std::string& name : shards) {
      const SafetensorsFile& file = files_.emplace_back(directory + "/" + name);
      for (const StoredTensor& tensor : file.tensors())
        if (const auto [it, added] = entries_.try_emplace(tensor.name, Entry{&file, &tensor}); !added)
          throw Error("'" + file.path() + "', tensor " + shown(tensor.name), "must be in one shard only",
                      "in '" + it->second.file->path() + "' too");
    }
    if (entries_.empty())
      throw Error("'" + directory + "'", "its shards must hold at least one tensor", "none");
    return;
  }
  const std::map<std::string, std::string> wanted = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : wanted)
    if (names.insert(file).second && !fs::exists(directory + "/" + file, ignored))
      throw Error("'" + index + "'", "every file that it names must exist", "no '" + file + "'");
  files_.reserve(names.size());  // entries_ points into it
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    const SafetensorsFile& file = files_.emplace_back(path);
    for (const StoredTensor& tensor : file.tensors()) {
      const auto it = wanted.find(tensor.name);
      if (it == wanted.end() || it->second != name)
        throw Error("'" + path + "', tensor " + shown(tensor.name),
                    "must be in the file that the index names",
                    it == wanted.end() ? "not in the index" : "'" + it->second + "'");
      entries_[tensor.name] = {&file, &tensor};
    }
  }
  for (const auto& [tensor, file] : wanted)
    if (!entries_.count(tensor))
      throw Error("'" + index + "', weight_map " + shown(tensor), "the file that it names must have it",
                  "'" + file + "' does not");
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::optional<TensorSource::Info> TensorFiles::find(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return std::nullopt;
  const StoredTensor& tensor = *it->second.tensor;
  return Info{tensor.dtype, tensor.shape, float_bytes(tensor.dtype) > 0};
}

std::string TensorFiles::file_of(std::string_view name) const {
  return "'" + (name.empty() ? entries_.begin()->second : entry(name)).file->path() + "'";
}

std::string TensorFiles::place(std::string_view name) const {
  return file_of(name) + ", tensor " + shown(name);
}

void TensorFiles::read(std::string_view name, std::vector<float>& into) const {
  const auto& [file, tensor] = entry(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->bytes()));
  file->read(*tensor, bytes);
  into.resize(bytes.size() / float_bytes(tensor->dtype));
  to_f32(tensor->dtype, bytes, into);
}

}  // namespace meshloom::trainer
