// What two engines must have alike so that one can go on from keys and values that the other computed, and the names that pages have
// between them: a hash of a page's tokens and of all that stands in front. In a process PagePool finds pages, by names that mean
// nothing elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace meshloom::trainer {

// Two engines can go on from each other's pages where these are alike.
struct KVIdentity {
  std::string weights;  // a hash of the name, type, shape and bytes of every parameter of the checkpoint
  std::string model;    // a hash of the model's config, as rules and modifiers have edited it
  std::string dtype;    // of activations
  std::int64_t page_size = 0;  // tokens
  std::string caches;          // a line for each: its name, its dtype and its shape in a page
  // How it computes: the device and whether it is batch-invariant. Where this differs, pages are used, but bits may differ.
  std::string arithmetic;
  bool operator==(const KVIdentity&) const = default;
};

// In which way `theirs` cannot be used with `ours`, as a rule and what was found there; "" = it can.
struct KVDifference {
  std::string rule, found;
};
KVDifference difference_of(const KVIdentity& ours, const KVIdentity& theirs);

struct ChainHash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const ChainHash&) const = default;
};
// What the first page of a text stands behind.
ChainHash chain_root(const KVIdentity& identity);
// XXH3, 128 bits, of `parent` and of the tokens, little-endian.
ChainHash chain_hash(const ChainHash& parent, std::span<const std::int32_t> tokens);

}  // namespace meshloom::trainer
