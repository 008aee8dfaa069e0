#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "hal/error.h"
#include "trainer/input/file.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-step-";

std::string stored_dtype(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::f32: return "F32";
    case kernels::DType::f16: return "F16";
    case kernels::DType::bf16: return "BF16";
    case kernels::DType::i32: return "I32";
    case kernels::DType::u32: return "U32";
    case kernels::DType::i8: return "I8";
    case kernels::DType::u8: return "U8";
  }
  return "?";
}

FileRecord write_tensors(const std::string& directory, const std::string& name,
                         const std::vector<NamedTensor>& tensors, const CheckpointContents& contents) {
  std::vector<StoredTensor> stored;
  for (const NamedTensor& tensor : tensors)
    stored.push_back({tensor.name, stored_dtype(tensor.type.dtype), tensor.type.shape});
  DurableFile file(directory, name);
  file.write(safetensors_header(stored, {{"format", "meshloom"}}));
  std::vector<std::byte> data;
  for (const NamedTensor& tensor : tensors) {
    data.resize(static_cast<std::size_t>(tensor.type.bytes()));
    contents.read(tensor.name, data);
    file.write(data);
  }
  return file.finish();
}

FileRecord write_text(const std::string& directory, const std::string& name, std::string_view text) {
  DurableFile file(directory, name);
  file.write(text);
  return file.finish();
}

// Moves a checkpoint out of the way first, so that an interrupted removal never leaves half of one in its place.
void discard(const std::string& directory, const std::string& path) {
  const std::string aside = directory + "/" + std::string(kTemporary) + "removed-" + std::to_string(::getpid());
  remove_tree(aside);
  rename_path(path, aside);
  remove_tree(aside);
}

void remove_leftovers(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (entry.path().filename().string().starts_with(kTemporary)) remove_tree(entry.path().string());
}

bool is_checkpoint(const std::string& path) { return std::filesystem::exists(path + "/manifest.json"); }

}  // namespace

std::string checkpoint_path(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/{}{:08}", directory, kPrefix, step);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::string digits = name.substr(kPrefix.size());
    if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    steps.push_back(std::stoll(digits));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string save_checkpoint(const std::string& directory, std::int64_t step, const CheckpointContents& contents,
                            std::int64_t keep) {
  make_directories(directory);
  remove_leftovers(directory);
  const std::string path = checkpoint_path(directory, step);
  const std::string temporary = fmt::format("{}/{}{:08}-{}", directory, kTemporary, step, ::getpid());
  try {
    make_directories(temporary);
    Manifest manifest{step, {}};
    manifest.files.push_back(write_tensors(temporary, "model.safetensors", contents.model, contents));
    manifest.files.push_back(write_tensors(temporary, "optimizer.safetensors", contents.optimizer, contents));
    manifest.files.push_back(write_text(temporary, "config.txt", contents.config));
    manifest.files.push_back(write_text(temporary, "state.json", contents.state));
    for (const auto& [name, bytes] : contents.files) manifest.files.push_back(write_text(temporary, name, bytes));
    sync_directory(temporary);
    write_text(temporary, "manifest.json", to_json(manifest));
    sync_directory(temporary);
    if (std::filesystem::exists(path)) discard(directory, path);
    rename_path(temporary, path);
    sync_directory(directory);
  } catch (const Error& error) {
    remove_tree(temporary);
    throw Error(fmt::format("checkpoint of step {} in '{}'", step, directory),
                "could not be saved; earlier checkpoints are as they were", error.what());
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  if (keep > 0) {
    std::int64_t kept = 0;
    for (std::int64_t other : checkpoint_steps(directory))
      if (other <= step && ++kept > keep) discard(directory, checkpoint_path(directory, other));
  }
  return path;
}

Checkpoint open_checkpoint(const std::string& path) {
  const Manifest manifest = parse_manifest(read_file(path + "/manifest.json", "'" + path + "/manifest.json'"),
                                           "'" + path + "/manifest.json'");
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.txt", "state.json"})
    if (std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const FileRecord& file) { return file.name == name; }))
      throw Error("'" + path + "/manifest.json'", "must list '" + std::string(name) + "'");
  verify_files(path, manifest);
  return {path,
          manifest.step,
          read_file(path + "/config.txt", "'" + path + "/config.txt'"),
          read_file(path + "/state.json", "'" + path + "/state.json'"),
          SafetensorsFile(path + "/model.safetensors"),
          SafetensorsFile(path + "/optimizer.safetensors")};
}

Checkpoint open_newest(const std::string& directory, const std::function<void(const std::string&)>& say) {
  if (is_checkpoint(directory)) return open_checkpoint(directory);
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    throw Error("checkpoints in '" + directory + "'", "the directory must be there", "none");
  std::string reason;
  for (std::int64_t step : checkpoint_steps(directory)) {
    try {
      return open_checkpoint(checkpoint_path(directory, step));
    } catch (const OtherVersion&) {
      throw;
    } catch (const Error& error) {
      if (reason.empty()) reason = error.what();
      say(fmt::format("the checkpoint of step {} is not whole, trying the one before it: {}", step, error.what()));
    }
  }
  throw Error("checkpoints in '" + directory + "'", "at least one must be whole",
              reason.empty() ? "none" : "none that is; " + reason);
}

void load_tensors(const SafetensorsFile& file, const std::vector<NamedTensor>& wanted,
                  const std::function<void(const std::string& name, std::span<const std::byte> data)>& write) {
  const std::string where = "'" + file.path() + "'";
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : wanted) by_name[tensor.name] = &tensor;
  for (const NamedTensor& tensor : wanted)
    if (!file.find(tensor.name)) throw Error(where, "must hold the tensor '" + tensor.name + "'", "it is absent");
  std::vector<std::byte> data;
  for (const StoredTensor& stored : file.tensors()) {
    const auto it = by_name.find(stored.name);
    if (it == by_name.end())
      throw Error(where, "must hold nothing but the run's tensors", "'" + stored.name + "'");
    const kernels::TensorType& type = it->second->type;
    if (stored.dtype != stored_dtype(type.dtype) || stored.shape != type.shape)
      throw Error(where + ", tensor '" + stored.name + "'", "must be " + kernels::to_string(type),
                  stored.dtype + kernels::to_string(stored.shape));
    data.resize(static_cast<std::size_t>(stored.bytes()));
    file.read(stored, data);
    write(stored.name, data);
  }
}

}  // namespace meshloom::trainer
