#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "hal/error.h"
#include "hal/low_precision.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/io/file.h"

namespace meshloom::trainer {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-step-";
constexpr const char* kUnhealthy = "unhealthy.txt";
// How often a reader tries again when the checkpoint that it was opening was removed.
constexpr int kMaxTries = 100;

// Reading a tensor failed, as opposed to writing it: the exception is passed on unchanged.
struct ReadFailed {
  std::exception_ptr why;
};

std::vector<std::byte> widened_bf16(std::span<const std::byte> data) {
  std::vector<std::byte> wide(2 * data.size());
  hal::widen(kernels::DType::bf16, data, wide);
  return wide;
}

std::vector<std::byte> narrowed_to_bf16(std::span<const std::byte> data) {
  std::vector<std::byte> narrow(data.size() / 2);
  hal::narrow(kernels::DType::bf16, data, narrow);
  return narrow;
}

FileRecord write_tensors(const std::string& directory, const std::string& name,
                         const std::vector<NamedTensor>& tensors, const CheckpointContents& contents) {
  std::vector<StoredTensor> stored;
  for (const NamedTensor& tensor : tensors)
    stored.push_back({tensor.name, stored_dtype(tensor.type.dtype), tensor.type.shape});
  ChecksummedFile file(directory, name);
  file.write(safetensors_header(stored, {{"format", "meshloom"}}));
  std::vector<std::byte> data;
  for (const NamedTensor& tensor : tensors) {
    data.resize(static_cast<std::size_t>(tensor.type.bytes()));
    try {
      contents.read(tensor.name, data);
    } catch (...) {
      throw ReadFailed{std::current_exception()};
    }
    file.write(data);
  }
  return file.finish();
}

// Renames a checkpoint before removing it, so that an interrupted removal never leaves half a checkpoint
// under its name.
void discard(const std::string& directory, const std::string& path) {
  const std::string aside =
      directory + "/" + std::string(kTemporary) + "removed-" + std::to_string(::getpid());
  remove_tree(aside);
  rename_path(path, aside);
  remove_tree(aside);
}

// The step that a directory is named after.
std::optional<std::int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

}  // namespace

std::string stored_dtype(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::f32:
      return "F32";
    case kernels::DType::f16:
      return "F16";
    case kernels::DType::bf16:
      return "BF16";
    case kernels::DType::i32:
      return "I32";
    case kernels::DType::u32:
      return "U32";
    case kernels::DType::i8:
      return "I8";
    case kernels::DType::u8:
      return "U8";
  }
  return "?";
}

bool is_checkpoint(const std::string& path) { return std::filesystem::exists(path + "/manifest.json"); }

std::string checkpoint_path(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/{}{:08}", directory, kPrefix, step);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (const auto step = step_of_name(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void remove_leftovers(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (entry.path().filename().string().starts_with(kTemporary)) remove_tree(entry.path().string());
}

std::string unhealthy_reason(const std::string& path) {
  std::error_code ignored;
  const std::string file = path + "/" + kUnhealthy;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) return {};
  try {
    const std::string text = read_file(file, "'" + file + "'");
    const std::string line = text.substr(0, std::min<std::size_t>(text.find('\n'), 500));
    return line.empty() ? "the file gives no reason" : line;
  } catch (const Error& error) {
    return error.what();
  }
}

void mark_unhealthy(const std::string& path, const std::string& reason) {
  if (!unhealthy_reason(path).empty()) return;
  write_new_file(path, kUnhealthy, reason + "\n");
  sync_directory(path);
}

std::string save_checkpoint(const std::string& directory, std::int64_t step,
                            const CheckpointContents& contents, std::int64_t keep) {
  const std::string path = checkpoint_path(directory, step);
  const std::string temporary = fmt::format("{}/{}{:08}-{}", directory, kTemporary, step, ::getpid());
  try {
    make_directories(directory);
    remove_leftovers(directory);
    make_directories(temporary);
    Manifest manifest{step, {}, {}, {}};
    if (contents.write_pieces) {
      CheckpointContents::Written written;
      try {
        written = contents.write_pieces(temporary);
      } catch (const SaveFailed&) {
        throw;
      } catch (...) {
        throw ReadFailed{std::current_exception()};
      }
      manifest.files = std::move(written.files);
      manifest.model = std::move(written.model);
      manifest.optimizer = std::move(written.optimizer);
    } else {
      manifest.files.push_back(write_tensors(temporary, "model.safetensors", contents.model, contents));
      manifest.files.push_back(
          write_tensors(temporary, "optimizer.safetensors", contents.optimizer, contents));
    }
    manifest.files.push_back(write_new_file(temporary, "config.txt", contents.config));
    manifest.files.push_back(write_new_file(temporary, "state.json", contents.state));
    for (const auto& [name, bytes] : contents.files)
      manifest.files.push_back(write_new_file(temporary, name, bytes));
    // It is not in the manifest, because it may be added or removed later.
    if (const std::string reason = contents.unhealthy ? contents.unhealthy() : ""; !reason.empty())
      write_new_file(temporary, kUnhealthy, reason + "\n");
    sync_directory(temporary);
    write_new_file(temporary, "manifest.json", to_json(manifest));
    sync_directory(temporary);
    if (std::filesystem::exists(path)) discard(directory, path);
    rename_path(temporary, path);
    sync_directory(directory);
  } catch (const ReadFailed& failed) {
    remove_tree(temporary);
    std::rethrow_exception(failed.why);
  } catch (const Error& error) {
    remove_tree(temporary);
    throw SaveFailed(fmt::format("checkpoint of step {} in '{}'", step, directory),
                     "could not be saved; earlier checkpoints are unchanged", error.what());
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  retain_checkpoints(directory, step, keep);
  return path;
}

std::string retain_checkpoints(const std::string& directory, std::int64_t step, std::int64_t keep,
                               std::int64_t verified) {
  if (keep <= 0) return {};
  std::int64_t healthy = 0, unhealthy = 0;
  bool has_verified = false;
  std::string failure;
  for (const std::int64_t other : checkpoint_steps(directory)) {
    if (other > step) continue;
    const std::string path = checkpoint_path(directory, other);
    if (!unhealthy_reason(path).empty()) {
      if (healthy == 0 && unhealthy++ == 0) continue;
    } else {
      const bool first_verified = other <= verified && !has_verified;
      has_verified = has_verified || first_verified;
      if (healthy++ < keep || first_verified) continue;
    }
    const CheckpointRemovalLock lock(path);
    if (!lock.granted()) continue;
    try {
      discard(directory, path);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  return failure;
}

Checkpoint open_checkpoint(const std::string& path, bool verify) {
  const auto lock = std::make_shared<CheckpointReadLock>(path);
  Manifest manifest = parse_manifest(read_file(path + "/manifest.json", "'" + path + "/manifest.json'"),
                                     "'" + path + "/manifest.json'");
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (const auto step = step_of_name(folder.filename().string()); step && *step != manifest.step)
    throw Error("'" + path + "'",
                fmt::format("a checkpoint of step {} lies in {}", manifest.step,
                            checkpoint_path("", manifest.step).substr(1)),
                folder.filename().string());
  const bool in_pieces = manifest.format() == kPiecesFormat;
  for (const char* name : {"config.txt", "state.json", "model.safetensors", "optimizer.safetensors"})
    if (!(in_pieces && std::string_view(name).ends_with(".safetensors")) &&
        std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const FileRecord& file) { return file.name == name; }))
      throw Error("'" + path + "/manifest.json'", "must list '" + std::string(name) + "'");
  if (verify) verify_files(path, manifest);
  const auto stored = [&](const char* name, std::vector<TensorInPieces>& tensors) {
    return in_pieces ? StoredTensors(path, path + "/" + name, std::move(tensors))
                     : StoredTensors(SafetensorsFile(path + "/" + name));
  };
  return {path,
          manifest.step,
          read_file(path + "/config.txt", "'" + path + "/config.txt'"),
          read_file(path + "/state.json", "'" + path + "/state.json'"),
          stored("model.safetensors", manifest.model),
          stored("optimizer.safetensors", manifest.optimizer),
          lock};
}

Checkpoint open_newest(const std::string& directory, const std::function<void(const std::string&)>& note) {
  if (is_checkpoint(directory)) {
    if (const std::string why = unhealthy_reason(directory); !why.empty())
      note(fmt::format("the checkpoint '{}' is marked unhealthy: {}", directory, why));
    return open_checkpoint(directory);
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    throw Error("checkpoints in '" + directory + "'", "the directory must exist", "none");
  std::string reason;
  for (int attempt = 0; attempt < kMaxTries; ++attempt) {
    bool removed = false;  // the run has removed the checkpoint meanwhile
    const auto opened = [&](std::int64_t step) -> std::optional<Checkpoint> {
      const std::string path = checkpoint_path(directory, step);
      try {
        return open_checkpoint(path);
      } catch (const VersionMismatch&) {
        throw;
      } catch (const Error& error) {
        removed = !std::filesystem::exists(path, ignored);
        if (removed) return std::nullopt;
        if (reason.empty()) reason = error.what();
        note(fmt::format("the checkpoint of step {} is not whole, trying the one before it: {}", step,
                         error.what()));
      }
      return std::nullopt;
    };
    std::vector<std::pair<std::int64_t, std::string>> unhealthy;  // step, why
    for (const std::int64_t step : checkpoint_steps(directory)) {
      if (std::string why = unhealthy_reason(checkpoint_path(directory, step)); !why.empty()) {
        unhealthy.emplace_back(step, std::move(why));
        continue;
      }
      if (std::optional<Checkpoint> found = opened(step)) {
        for (const auto& [newer, why] : unhealthy)
          note(
              fmt::format("the checkpoint of step {} is marked unhealthy ({}); the newest healthy one is of "
                          "step {}. Removing {} from the former removes the mark",
                          newer, why, step, kUnhealthy));
        return std::move(*found);
      }
      if (removed) break;
    }
    if (removed) continue;
    for (const auto& [step, why] : unhealthy) {
      if (std::optional<Checkpoint> found = opened(step)) {
        note(fmt::format("the checkpoint of step {} is marked unhealthy ({}), and none in '{}' is healthy",
                         step, why, directory));
        return std::move(*found);
      }
      if (removed) break;
    }
    if (!removed) break;
  }
  throw Error("checkpoints in '" + directory + "'", "at least one must be whole",
              reason.empty() ? "none" : "none; " + reason);
}

void load_tensors(const StoredTensors& file, const std::vector<NamedTensor>& wanted,
                  const std::function<void(const std::string& name, std::span<const std::byte> data)>& write,
                  bool convert, const PartOf& part) {
  check_tensors(file, wanted, convert);
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : wanted) by_name[tensor.name] = &tensor;
  std::vector<std::byte> data;
  for (const StoredTensor& stored : file.tensors()) {
    const kernels::TensorType& type = by_name.at(stored.name)->type;
    const Layout layout = part ? part(stored.name) : whole_layout(type);
    const std::int64_t bytes = stored.bytes() / std::max<std::int64_t>(1, type.elements());
    data.resize(static_cast<std::size_t>(layout.range.count * bytes));
    file.read(stored, layout, data);
    if (convert && stored.dtype == "BF16" && type.dtype == kernels::DType::f32) data = widened_bf16(data);
    if (convert && stored.dtype == "F32" && type.dtype == kernels::DType::bf16) data = narrowed_to_bf16(data);
    write(stored.name, data);
  }
}

}  // namespace meshloom::trainer
