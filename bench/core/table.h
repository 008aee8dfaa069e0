// Formats tables and the header lines above them.
#pragma once

#include <string>
#include <vector>

#include "bench/core/report.h"

namespace meshloom::bench {

// Columns are as wide as their longest cell; `left` says which are left-aligned. Empty columns are omitted.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left);
// "a long te..."
std::string shortened(const std::string& text, std::size_t max_size);
std::string header_text(const Header& header, const Ceilings& ceilings);

}  // namespace meshloom::bench
