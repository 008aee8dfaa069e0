// How many rows of a micro-batch each rank computes, where ranks are not equally fast.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace meshloom::trainer {

struct RankSpeed {
  double seconds = 1;         // that one row takes
  std::int64_t max_rows = 0;  // that fit into the memory; 0 = any number
};

// Deals the rows so that ranks take equally long, as far as whole rows allow: in proportion to 1 / seconds, at least one for
// every rank and at most what fits; what is left over goes to the largest remainders, of equals to the first rank. Throws Error
// for fewer rows than ranks, more rows than fit, and seconds that are not above 0 and finite.
std::vector<std::int64_t> deal_rows(std::int64_t rows, std::span<const RankSpeed> ranks);

// Throws Error (where = `where`) unless these are rows of so many ranks, at least one each, that sum to `rows`.
void check_shares(std::span<const std::int64_t> shares, std::int64_t ranks, std::int64_t rows,
                  const std::string& where);

}  // namespace meshloom::trainer
