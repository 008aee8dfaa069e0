#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

// The manifest's own checksum, so that a flipped bit in it is not mistaken for a damaged file. It does not
// cover the format number: a later format must begin the checksummed text with its number, so that its
// checksums differ from these.
std::string own_checksum(const Manifest& manifest) {
  const std::string text = std::to_string(manifest.step) + list_of(manifest.files).dump();
  return hex(XXH64(text.data(), text.size(), 0));
}

std::uint64_t parse_hex(const nlohmann::json& json, const std::string& where) {
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Error(where, "a checksum must be 16 hexadecimal digits", shown_json(json));
  return std::stoull(text, nullptr, 16);
}

Manifest parse_content(const nlohmann::json& json, const std::string& where) {
  Manifest manifest;
  manifest.step = natural_member(json, "step", where);
  for (const nlohmann::json& file : json.at("files")) {
    FileRecord record{file.at("name").get<std::string>(), natural_member(file, "bytes", where), {}};
    if (record.name.find('/') != std::string::npos || record.name.empty() || record.name[0] == '.')
      throw Error(where, "files must lie in the checkpoint's own directory", shown(record.name));
    if (file.at("chunk_bytes") != kChunkBytes)
      throw Error(where, "chunks must have " + std::to_string(kChunkBytes) + " bytes",
                  shown_json(file.at("chunk_bytes")));
    for (const nlohmann::json& chunk : file.at("xxh64")) record.chunks.push_back(parse_hex(chunk, where));
    manifest.files.push_back(std::move(record));
  }
  if (const nlohmann::json& own = json.at("xxh64");
      !own.is_string() || own.get<std::string>() != own_checksum(manifest))
    throw Error(where, "its own checksum must match", shown_json(own));
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  OrderedJson json;
  json["format"] = "meshloom-checkpoint";
  json["version"] = kCheckpointFormat;
  json["step"] = manifest.step;
  json["files"] = list_of(manifest.files);
  json["xxh64"] = own_checksum(manifest);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  constexpr int kDepth = 4;
  try {
    const nlohmann::json json = parse_json(text, where, "the file", kDepth);
    if (json.at("format") != "meshloom-checkpoint")
      throw Error(where, "must be a meshloom-checkpoint manifest", shown_json(json.at("format")));
    const std::int64_t version = natural_member(json, "version", where);
    if (version == kCheckpointFormat) return parse_content(json, where);
    bool damaged = true;
    try {
      parse_content(json, where);
    } catch (const std::exception&) {
      damaged = false;
    }
    if (damaged)
      throw Error(where, fmt::format("by its checksum this content is of format {}", kCheckpointFormat),
                  fmt::format("{}", version));
    throw VersionMismatch(
        where,
        fmt::format("this program reads checkpoint format {}; another version of the program wrote this one",
                    kCheckpointFormat),
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
