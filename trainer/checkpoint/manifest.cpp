#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxDepth = 7;  // of the JSON

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

OrderedJson list_of(const std::vector<FileRecord>& records) {
  OrderedJson files = OrderedJson::array();
  for (const FileRecord& file : records) {
    OrderedJson chunks = OrderedJson::array();
    for (std::uint64_t chunk : file.chunks) chunks.push_back(hex(chunk));
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"chunk_bytes", kChunkBytes}, {"xxh64", chunks}});
  }
  return files;
}

OrderedJson list_of(const std::vector<TensorInPieces>& list) {
  OrderedJson tensors = OrderedJson::array();
  for (const TensorInPieces& tensor : list) {
    OrderedJson pieces = OrderedJson::array();
    for (const TensorPiece& piece : tensor.pieces)
      pieces.push_back({{"file", piece.file},
                        {"begin", piece.begin},
                        {"extent", piece.extent},
                        {"first", piece.first},
                        {"count", piece.count}});
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", pieces}});
  }
  return tensors;
}

// The manifest's own checksum, so that a flipped bit in it is not mistaken for a damaged file. It does not
// cover the number of format 1: later formats begin the checksummed text with their number, so that their
// checksums differ from those.
std::string own_checksum(const Manifest& manifest) {
  std::string text = std::to_string(manifest.step) + list_of(manifest.files).dump();
  if (manifest.format() == kPiecesFormat)
    text = fmt::format("format {}, step {}{}{}", kPiecesFormat, text, list_of(manifest.model).dump(),
                       list_of(manifest.optimizer).dump());
  return hex(XXH64(text.data(), text.size(), 0));
}

std::vector<std::int64_t> naturals(const nlohmann::json& json, const std::string& where) {
  std::vector<std::int64_t> values;
  for (const nlohmann::json& one : json) {
    std::int64_t value = 0;
    if (!json.is_array() || !natural(one, value))
      throw Error(where, "sizes must be integers in [0, 2^63)", shown_json(one));
    values.push_back(value);
  }
  return values;
}

// The number of elements of a shape. Throws Error where it does not fit.
std::int64_t elements_of(const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(count, size, &count))
      throw Error(where, "sizes must be at least 1, and their product below 2^63",
                  fmt::format("({})", fmt::join(shape, ", ")));
  return count;
}

void require_plain_name(const std::string& name, const std::string& where) {
  if (name.find('/') != std::string::npos || name.empty() || name[0] == '.')
    throw Error(where, "files must lie in the checkpoint's own directory", shown(name));
}

TensorInPieces parse_tensor(const nlohmann::json& json, const std::string& where) {
  TensorInPieces tensor{json.at("name").get<std::string>(),
                        json.at("dtype").get<std::string>(),
                        naturals(json.at("shape"), where),
                        {}};
  const std::string here = where + ", tensor " + shown(tensor.name);
  if (tensor.shape.size() > kMaxPieceRank)
    throw Error(here, fmt::format("must have at most {} dimensions", kMaxPieceRank),
                fmt::format("{}", tensor.shape.size()));
  elements_of(tensor.shape, here);
  for (const nlohmann::json& one : json.at("pieces")) {
    TensorPiece piece{one.at("file").get<std::string>(), naturals(one.at("begin"), here),
                      naturals(one.at("extent"), here), natural_member(one, "first", here),
                      natural_member(one, "count", here)};
    require_plain_name(piece.file, here);
    const std::string text =
        fmt::format("begin ({}), extent ({}), first {}, count {} of '{}'", fmt::join(piece.begin, ", "),
                    fmt::join(piece.extent, ", "), piece.first, piece.count, shown(piece.file));
    bool inside = piece.begin.size() == tensor.shape.size() && piece.extent.size() == tensor.shape.size();
    for (std::size_t d = 0; inside && d < tensor.shape.size(); ++d)
      inside = piece.extent[d] <= tensor.shape[d] && piece.begin[d] <= tensor.shape[d] - piece.extent[d];
    if (!inside)
      throw Error(here, fmt::format("its pieces must lie in its shape, ({})", fmt::join(tensor.shape, ", ")),
                  text);
    const std::int64_t elements = elements_of(piece.extent, here);
    if (piece.count < 1 || piece.first > elements || piece.count > elements - piece.first)
      throw Error(here, "a piece must have elements of its box", text);
    tensor.pieces.push_back(std::move(piece));
  }
  return tensor;
}

std::vector<TensorInPieces> parse_tensors(const nlohmann::json& json, const std::string& where) {
  if (!json.is_array()) throw Error(where, "tensors must be a list", shown_json(json));
  std::vector<TensorInPieces> tensors;
  for (const nlohmann::json& one : json) tensors.push_back(parse_tensor(one, where));
  return tensors;
}

// All tensors are whole, each is there once, and every piece is in a file that is listed.
void check_tensors(const Manifest& manifest, const std::string& where) {
  std::set<std::string> files;
  for (const FileRecord& file : manifest.files) files.insert(file.name);
  for (const auto* list : {&manifest.model, &manifest.optimizer}) {
    std::set<std::string> names;
    for (const TensorInPieces& tensor : *list) {
      const std::string here = where + ", tensor " + shown(tensor.name);
      if (!names.insert(tensor.name).second) throw Error(here, "must be listed once", "twice");
      for (const TensorPiece& piece : tensor.pieces)
        if (!files.count(piece.file)) throw Error(here, "the manifest must list the file", shown(piece.file));
      check_pieces(tensor, where);
    }
  }
}

std::uint64_t parse_hex(const nlohmann::json& json, const std::string& where) {
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Error(where, "a checksum must be 16 hexadecimal digits", shown_json(json));
  return std::stoull(text, nullptr, 16);
}

Manifest parse_content(const nlohmann::json& json, const std::string& where, int format) {
  Manifest manifest;
  manifest.step = natural_member(json, "step", where);
  for (const nlohmann::json& file : json.at("files")) {
    FileRecord record{file.at("name").get<std::string>(), natural_member(file, "bytes", where), {}};
    require_plain_name(record.name, where);
    if (file.at("chunk_bytes") != kChunkBytes)
      throw Error(where, "chunks must have " + std::to_string(kChunkBytes) + " bytes",
                  shown_json(file.at("chunk_bytes")));
    for (const nlohmann::json& chunk : file.at("xxh64")) record.chunks.push_back(parse_hex(chunk, where));
    manifest.files.push_back(std::move(record));
  }
  if (format == kPiecesFormat) {
    manifest.model = parse_tensors(json.at("model"), where);
    manifest.optimizer = parse_tensors(json.at("optimizer"), where);
    if (manifest.format() != format) throw Error(where, "must list the pieces of tensors", "none");
  }
  if (const nlohmann::json& own = json.at("xxh64");
      !own.is_string() || own.get<std::string>() != own_checksum(manifest))
    throw Error(where, "its own checksum must match", shown_json(own));
  check_tensors(manifest, where);
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  OrderedJson json;
  json["format"] = "meshloom-checkpoint";
  json["version"] = manifest.format();
  json["step"] = manifest.step;
  json["files"] = list_of(manifest.files);
  if (manifest.format() == kPiecesFormat) {
    json["model"] = list_of(manifest.model);
    json["optimizer"] = list_of(manifest.optimizer);
  }
  json["xxh64"] = own_checksum(manifest);
  return json.dump(1) + "\n";
}

std::string to_json(const std::vector<TensorInPieces>& tensors) { return list_of(tensors).dump(); }

std::vector<TensorInPieces> parse_tensors_in_pieces(std::string_view text, const std::string& where) {
  try {
    return parse_tensors(parse_json(text, where, "the list", kMaxDepth), where);
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, "must be a list of tensors in pieces", error.what());
  }
}

void check_pieces(const TensorInPieces& tensor, const std::string& where) {
  const std::string here = where + ", tensor " + shown(tensor.name);
  const auto refuse = [&](const TensorPiece& a, const TensorPiece& b) {
    throw Error(here, "its pieces must not overlap",
                fmt::format("those of {} and {}", shown(a.file), shown(b.file)));
  };
  // Pieces by box, in order.
  std::map<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>, std::vector<const TensorPiece*>>
      boxes;
  for (const TensorPiece& piece : tensor.pieces) boxes[{piece.begin, piece.extent}].push_back(&piece);
  std::int64_t found = 0;
  for (auto box = boxes.begin(); box != boxes.end(); ++box) {
    std::vector<const TensorPiece*>& pieces = box->second;
    std::sort(pieces.begin(), pieces.end(),
              [](const TensorPiece* a, const TensorPiece* b) { return a->first < b->first; });
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0 && pieces[i - 1]->first + pieces[i - 1]->count > pieces[i]->first)
        refuse(*pieces[i - 1], *pieces[i]);
      found += pieces[i]->count;  // of disjoint ranges of disjoint boxes: it cannot overflow
    }
    const auto& [begin, extent] = box->first;
    for (auto other = boxes.begin(); other != box; ++other) {
      bool apart = false;
      for (std::size_t d = 0; d < begin.size(); ++d)
        apart = apart || begin[d] + extent[d] <= other->first.first[d] ||
                other->first.first[d] + other->first.second[d] <= begin[d];
      if (!apart) refuse(*other->second.front(), *pieces.front());
    }
  }
  if (const std::int64_t wanted = elements_of(tensor.shape, here); found != wanted)
    throw Error(here, fmt::format("its pieces must have all of its {} elements", wanted),
                fmt::format("{}", found));
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    const nlohmann::json json = parse_json(text, where, "the file", kMaxDepth);
    if (json.at("format") != "meshloom-checkpoint")
      throw Error(where, "must be a meshloom-checkpoint manifest", shown_json(json.at("format")));
    const std::int64_t version = natural_member(json, "version", where);
    if (version == kCheckpointFormat || version == kPiecesFormat)
      return parse_content(json, where, static_cast<int>(version));
    for (const int format : {kCheckpointFormat, kPiecesFormat}) {
      bool damaged = true;
      try {
        parse_content(json, where, format);
      } catch (const std::exception&) {
        damaged = false;
      }
      if (damaged)
        throw Error(where, fmt::format("by its checksum this content is of format {}", format),
                    fmt::format("{}", version));
    }
    throw VersionMismatch(where,
                          fmt::format("this program reads the checkpoint formats {} and {}; another version "
                                      "of the program wrote this one",
                                      kCheckpointFormat, kPiecesFormat),
                          fmt::format("format {}", version));
  } catch (const nlohmann::json::exception& error) {
    throw Error(where, "must be a checkpoint manifest", error.what());
  }
}

void verify_files(const std::string& directory, const Manifest& manifest) {
  for (const FileRecord& wanted : manifest.files) {
    const FileRecord found = record_of(directory, wanted.name);
    const std::string where = "'" + directory + "/" + wanted.name + "'";
    if (found.bytes != wanted.bytes)
      throw Error(where, fmt::format("the manifest says {} bytes", wanted.bytes),
                  fmt::format("{}", found.bytes));
    for (std::size_t i = 0; i < wanted.chunks.size() && i < found.chunks.size(); ++i)
      if (found.chunks[i] != wanted.chunks[i])
        throw Error(
            where,
            fmt::format("the checksum of bytes {} to {} must be {}", i * kChunkBytes,
                        std::min<std::int64_t>(static_cast<std::int64_t>(i + 1) * kChunkBytes, found.bytes),
                        hex(wanted.chunks[i])),
            hex(found.chunks[i]));
    if (found.chunks.size() != wanted.chunks.size())
      throw Error(where, fmt::format("the manifest says {} chunks", wanted.chunks.size()),
                  fmt::format("{}", found.chunks.size()));
  }
}

}  // namespace meshloom::trainer
