// Text for people: tables and the lines above them.
#pragma once

#include <string>
#include <vector>

#include "bench/core/report.h"

namespace meshloom::bench {

// Columns as wide as their longest cell; `left` says which are aligned to the left. Columns without text
// vanish.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left);
// "a long te..."
std::string shortened(const std::string& text, std::size_t most);
std::string header_text(const Header& header, const Ceilings& ceilings);

}  // namespace meshloom::bench
