// Published training runs: what a table (CSV, RFC 4180) says of each, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::bench {

struct PublishedRun {
  int line = 0;  // of the table
  std::string source, model, chip, sharding, precision, remat, grade;
  // Sizes in elements; kv_heads and head_dim follow from the others where the table does not say them.
  std::int64_t layers = 0, d_model = 0, heads = 0, head_dim = 0, kv_heads = 0, ffn = 0, vocab = 0,
               sequence = 0;
  double parameters = 0;
  bool gated = false;
  std::int64_t experts = 0, top_k = 0;  // 0 = dense
  std::int64_t chips = 0;
  // Degrees; 1 where the table says nothing. What chips are left is `data`, or `fsdp` where the sharding says FSDP.
  std::int64_t data = 1, fsdp = 1, tensor = 1, pipeline = 1, context = 1, expert = 1, virtual_stages = 1;
  std::int64_t micro_batch = 1;   // sequences of a data-parallel rank at once
  std::int64_t accumulation = 1;  // micro-batches of one step
  double seconds = 0;             // of a step
  double peak_gib = 0;            // of a chip; 0 = not said

  std::int64_t copies() const { return data * fsdp; }  // ranks that have rows of their own
  bool fp8() const;                                    // its products are of 8 bits
};

// Throws Error (where = NAME, line and column) for a table that is no CSV, has no rows or lacks a column, for a field that is not
// what its column holds, and for degrees that do not divide the chips.
std::vector<PublishedRun> parse_published_runs(std::string_view csv, const std::string& name);

}  // namespace meshloom::bench
