#include "trainer/run/state/save_pieces.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "hal/error.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/checkpoint/non_finite.h"
#include "trainer/execute/gather_texts.h"
#include "trainer/io/file.h"
#include "trainer/run/state/stored_run.h"

namespace meshloom::trainer {
namespace {

constexpr const char* kListed = "the pieces of a rank";
// So many times as patient are ranks while one writes its file.
constexpr double kWriting = 10;

// The piece of each tensor that a rank holds.
std::vector<TensorInPieces> held_pieces(const Plan& plan, const std::vector<NamedTensor>& tensors) {
  std::vector<TensorInPieces> list;
  for (const auto& [name, type] : tensors) {
    const Layout layout = plan.layout(name, plan.mesh.rank());
    if (layout.partial)
      throw hal::Error("checkpoint, '" + name + "'", "a value that is saved must be no sum over ranks");
    TensorInPieces tensor{name, stored_dtype(type.dtype), type.shape, {}};
    if (layout.range.count > 0)
      tensor.pieces.push_back({"rank", layout.begin, layout.extent, layout.range.first, layout.range.count});
    list.push_back(std::move(tensor));
  }
  return list;
}

// Tensors in pieces, each with the rank that writes it.
struct Dealt {
  std::vector<TensorInPieces> tensors;
  std::vector<std::vector<int>> writers;  // of the pieces of each
  std::vector<int> files;                 // the ranks that write any
};

// Gives every piece to the first rank that holds it, and names the ranks' files.
Dealt deal(const std::vector<std::vector<TensorInPieces>>& held, const std::string& kind) {
  Dealt dealt;
  std::map<std::string, std::size_t> known;
  std::set<int> files;
  for (std::size_t rank = 0; rank < held.size(); ++rank)
    for (const TensorInPieces& tensor : held[rank]) {
      const auto [found, is_new] = known.emplace(tensor.name, dealt.tensors.size());
      if (is_new) {
        dealt.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
        dealt.writers.emplace_back();
      }
      TensorInPieces& whole = dealt.tensors[found->second];
      if (whole.dtype != tensor.dtype || whole.shape != tensor.shape)
        throw SaveFailed("tensor '" + tensor.name + "'", "all ranks must have the same type of it",
                         whole.dtype + " and " + tensor.dtype);
      for (const TensorPiece& piece : tensor.pieces)
        if (std::find(whole.pieces.begin(), whole.pieces.end(), piece) == whole.pieces.end()) {
          whole.pieces.push_back(piece);
          dealt.writers[found->second].push_back(static_cast<int>(rank));
          files.insert(static_cast<int>(rank));
        }
    }
  dealt.files.assign(files.begin(), files.end());
  for (std::size_t i = 0; i < dealt.tensors.size(); ++i)
    for (std::size_t k = 0; k < dealt.writers[i].size(); ++k) {
      const auto place = std::find(dealt.files.begin(), dealt.files.end(), dealt.writers[i][k]);
      dealt.tensors[i].pieces[k].file =
          dealt.files.size() == 1 ? kind + ".safetensors"
                                  : fmt::format("{}-{:05}-of-{:05}.safetensors", kind,
                                                place - dealt.files.begin() + 1, dealt.files.size());
    }
  return dealt;
}

// Writes the pieces of this rank, if it has any.
void write_own(Session& session, int rank, const Dealt& dealt, const std::string& directory,
               NonFiniteCounter& not_finite, std::vector<FileRecord>& written) {
  std::vector<StoredTensor> stored;
  std::string file_name;
  for (std::size_t i = 0; i < dealt.tensors.size(); ++i)
    for (std::size_t k = 0; k < dealt.writers[i].size(); ++k) {
      if (dealt.writers[i][k] != rank) continue;
      const TensorPiece& piece = dealt.tensors[i].pieces[k];
      const bool is_box = piece.count == kernels::elements(piece.extent);
      stored.push_back(
          {dealt.tensors[i].name, dealt.tensors[i].dtype, is_box ? piece.extent : std::vector{piece.count}});
      file_name = piece.file;
    }
  if (stored.empty()) return;
  ChecksummedFile file(directory, file_name);
  file.write(safetensors_header(stored, {{"format", "meshloom"}}));
  std::vector<std::byte> data;
  for (const StoredTensor& tensor : stored) {
    data.resize(static_cast<std::size_t>(tensor.bytes()));
    session.read(tensor.name, data);
    not_finite.add_values(tensor.name, session.plan().whole_type(tensor.name).dtype, data);
    file.write(data);
  }
  written.push_back(file.finish());
}

}  // namespace

SavedPieces save_pieces(Session& session, hal::Transport& transport, const std::string& directory,
                        double patience) {
  const Plan& plan = session.plan();
  const std::string shared = gather_texts(transport, directory, patience).front();
  const std::vector<std::string> lists = gather_texts(transport,
                                                      to_json(held_pieces(plan, model_tensors(plan))) + "\n" +
                                                          to_json(held_pieces(plan, state_tensors(plan))),
                                                      patience);
  std::vector<std::vector<TensorInPieces>> model, optimizer;
  for (const std::string& list : lists) {
    const std::size_t line = list.find('\n');
    model.push_back(parse_tensors_in_pieces(list.substr(0, line), kListed));
    optimizer.push_back(parse_tensors_in_pieces(list.substr(line + 1), kListed));
  }
  const Dealt of_model = deal(model, "model"), of_optimizer = deal(optimizer, "optimizer");
  // "" or an error, a line; what is not finite, a line; the files.
  std::string error;
  NonFiniteCounter not_finite;
  Manifest own{0, {}, {}, {}};
  try {
    write_own(session, transport.rank(), of_model, shared, not_finite, own.files);
    write_own(session, transport.rank(), of_optimizer, shared, not_finite, own.files);
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const std::exception& failed) {
    error = failed.what();
    std::replace(error.begin(), error.end(), '\n', ' ');
  }
  const std::vector<std::string> results = gather_texts(
      transport, error + "\n" + (not_finite.count() > 0 ? not_finite.text() : "") + "\n" + to_json(own),
      kWriting * patience);
  SavedPieces saved{{{}, of_model.tensors, of_optimizer.tensors}, ""};
  for (int rank = 0; rank < transport.size(); ++rank) {
    const std::string& result = results[static_cast<std::size_t>(rank)];
    const std::size_t first = result.find('\n'), second = result.find('\n', first + 1);
    if (first > 0)
      throw SaveFailed(transport.name(rank), "must write its part of the checkpoint",
                       result.substr(0, first));
    if (saved.not_finite.empty()) saved.not_finite = result.substr(first + 1, second - first - 1);
    for (FileRecord& file : parse_manifest(result.substr(second + 1), kListed).files)
      saved.written.files.push_back(std::move(file));
  }
  return saved;
}

int rank_without_directory(hal::Transport& transport, const std::string& directory, double patience) {
  // remove_leftovers() takes it where this process ends before it does.
  std::string probe;
  if (transport.rank() == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string name = fmt::format(".tmp-step-probe-{}-{}", ::getpid(), now);
    write_new_file(directory, name, name);
    probe = name;
  }
  const std::string name = gather_texts(transport, probe, patience).front();
  bool sees = false;
  try {
    const std::string path = directory + "/" + name;
    sees = read_file(path, "'" + path + "'") == name;
  } catch (const hal::Error&) {
  }
  const std::vector<std::string> all = gather_texts(transport, sees ? "sees" : "", patience);
  if (transport.rank() == 0) remove_tree(directory + "/" + name);
  const auto blind = std::find(all.begin(), all.end(), "");
  return blind == all.end() ? -1 : static_cast<int>(blind - all.begin());
}

}  // namespace meshloom::trainer
