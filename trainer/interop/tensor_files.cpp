#include "trainer/interop/tensor_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "hal/error.h"
#include "trainer/input/file.h"
#include "trainer/input/json.h"

namespace meshloom::trainer {
namespace {

// Tensor -> file, as the index has it.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string where = "'" + path + "'";
  const nlohmann::json json = parse_json(read_file(path, where), where, "the index", 4);
  const auto it = json.is_object() ? json.find("weight_map") : json.end();
  if (it == json.end() || !it->is_object()) throw Error(where, "must have an object weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : it->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw Error(where + ", weight_map " + shown(tensor), "must name a file of the same directory", shown_json(file));
    files[tensor] = name;
  }
  if (files.empty()) throw Error(where, "weight_map must name at least one tensor", "none");
  return files;
}

}  // namespace

TensorFiles::TensorFiles(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string single = directory + "/model.safetensors", index = single + ".index.json";
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    files_.emplace_back(single);
    for (const StoredTensor& tensor : files_.front().tensors()) entries_[tensor.name] = {&files_.front(), &tensor};
    return;
  }
  if (!fs::exists(index, ignored))
    throw Error("'" + directory + "'", "must hold model.safetensors or model.safetensors.index.json",
                fs::exists(directory + "/pytorch_model.bin", ignored)
                    ? "pytorch_model.bin only, which is not read: save it as safetensors"
                    : "neither");
  const std::map<std::string, std::string> wanted = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : wanted)
    if (names.insert(file).second && !fs::exists(directory + "/" + file, ignored))
      throw Error("'" + index + "'", "every file it names must be there", "no '" + file + "'");
  files_.reserve(names.size());  // entries point into it
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    const SafetensorsFile& file = files_.emplace_back(path);
    for (const StoredTensor& tensor : file.tensors()) {
      const auto it = wanted.find(tensor.name);
      if (it == wanted.end() || it->second != name)
        throw Error("'" + path + "', tensor " + shown(tensor.name), "must be where the index has it",
                    it == wanted.end() ? "not in the index" : "'" + it->second + "'");
      entries_[tensor.name] = {&file, &tensor};
    }
  }
  for (const auto& [tensor, file] : wanted)
    if (!entries_.count(tensor))
      throw Error("'" + index + "', weight_map " + shown(tensor), "the file it names must hold it", "'" + file + "' does not");
}

const TensorFiles::Entry* TensorFiles::find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

}  // namespace meshloom::trainer
