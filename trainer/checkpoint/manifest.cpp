#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/input/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// A manifest guards itself too: a flipped bit in a checksum is not taken for one in the file.
std::string own_checksum(std::int64_t step, const Json& files) {
  const std::string text = std::to_string(step) + files.dump();
  return hex(XXH64(text.data(), text.size(), 0));
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) {
    Json chunks = Json::array();
    for (std::uint64_t chunk : file.chunks) chunks.push_back(hex(chunk));
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"chunk_bytes", kChunkBytes}, {"xxh64", chunks}});
  }
  Json json;
  json["format"] = "meshloom-checkpoint";
  json["version"] = kCheckpointFormat;
  json["step"] = manifest.step;
  json["files"] = files;
  json["xxh64"] = own_checksum(manifest.step, files);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  Json json;
  Manifest manifest;
  try {
    json = Json::parse(text.begin(), text.end());
    if (json.at("format") != "meshloom-checkpoint")
      throw Error(where, "must be a meshloom-checkpoint manifest", json.at("format").dump());
    if (const auto version = natural_member(json, "version", where); version != kCheckpointFormat)
      throw OtherVersion(where,
                         fmt::format("this program reads checkpoint format {}, another version of it wrote this one",
                                     kCheckpointFormat),
                         fmt::format("format {}", version));
    manifest.step = natural_member(json, "step", where);
    if (json.at("xxh64").get<std::string>() != own_checksum(manifest.step, json.at("files")))
      throw Error(where, "its own checksum must match", json.at("xxh64").get<std::string>());
    for (const Json& file : json.at("files")) {
      FileRecord record{file.at("name").get<std::string>(), natural_member(file, "bytes", where), {}};
      if (record.name.find('/') != std::string::npos || record.name.empty() || record.name[0] == '.')
        throw Error(where, "files must lie in the checkpoint's own directory", record.name);
      if (file.at("chunk_bytes") != kChunkBytes)
        throw Error(where, "chunks must have " + std::to_string(kChunkBytes) + " bytes",
                    file.at("chunk_bytes").dump());
      for (const Json& chunk : file.at("xxh64"))
        record.chunks.push_back(std::stoull(chunk.get<std::string>(), nullptr, 16));
      manifest.files.push_back(std::move(record));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(where, "must be a checkpoint manifest", error.what());
  }
  return manifest;
}

void verify_files(const std::string& directory, const Manifest& manifest) {
  for (const FileRecord& wanted : manifest.files) {
    const FileRecord found = record_of(directory, wanted.name);
    const std::string where = "'" + directory + "/" + wanted.name + "'";
    if (found.bytes != wanted.bytes)
      throw Error(where, fmt::format("the manifest says {} bytes", wanted.bytes), fmt::format("{}", found.bytes));
    for (std::size_t i = 0; i < wanted.chunks.size() && i < found.chunks.size(); ++i)
      if (found.chunks[i] != wanted.chunks[i])
        throw Error(where,
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
