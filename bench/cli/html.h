// A report as one self-contained HTML page.
#pragma once

#include <string>

#include "bench/core/report.h"

namespace meshloom::bench {

// The page has a header, a roofline, a heat map of shapes by variants, bars against the baseline, and a
// sortable table.
std::string to_html(const Report& report);

// Escapes text for a <script> element: no "</", no "<!--".
std::string safe_in_script(const std::string& text);

}  // namespace meshloom::bench
