#include "trainer/inference/kv_identity.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace meshloom::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "hashes are over little-endian numbers");

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The first line that differs.
KVDifference difference_of_caches(const std::string& ours, const std::string& theirs) {
  const std::vector<std::string> here = lines_of(ours), there = lines_of(theirs);
  const auto line = [](const std::vector<std::string>& lines, std::size_t at) {
    return at < lines.size() ? lines[at] : std::string("none");
  };
  std::size_t at = 0;
  while (at < here.size() && at < there.size() && here[at] == there[at]) ++at;
  return {"must keep what this side keeps in its caches, " + line(here, at), line(there, at)};
}

}  // namespace

KVDifference difference_of(const KVIdentity& ours, const KVIdentity& theirs) {
  if (ours.model != theirs.model)
    return {"must serve the same model, edited alike by --modify and the rules of its hardware", "another"};
  if (ours.weights != theirs.weights)
    return {"must have the same parameters, of hash " + ours.weights, theirs.weights};
  if (ours.dtype != theirs.dtype) return {"must compute in " + ours.dtype, theirs.dtype};
  if (ours.page_size != theirs.page_size)
    return {"must have pages of " + std::to_string(ours.page_size) + " tokens (--page-size)",
            std::to_string(theirs.page_size)};
  if (ours.caches != theirs.caches) return difference_of_caches(ours.caches, theirs.caches);
  return {};
}

ChainHash chain_root(const KVIdentity& identity) {
  // Lengths keep texts apart that are cut differently.
  std::string all;
  for (const std::string* part : {&identity.weights, &identity.model, &identity.dtype, &identity.caches})
    all += std::to_string(part->size()) + ' ' + *part;
  all += std::to_string(identity.page_size);
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.low64, hash.high64};
}

ChainHash chain_hash(const ChainHash& parent, std::span<const std::int32_t> tokens) {
  std::string all(2 * sizeof(std::uint64_t) + tokens.size_bytes(), 0);
  std::memcpy(all.data(), &parent.low, sizeof parent.low);
  std::memcpy(all.data() + sizeof parent.low, &parent.high, sizeof parent.high);
  if (!tokens.empty()) std::memcpy(all.data() + 2 * sizeof parent.low, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return {hash.low64, hash.high64};
}

}  // namespace meshloom::trainer
