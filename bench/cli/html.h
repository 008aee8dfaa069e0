// A report as one page that needs no network.
#pragma once

#include <string>

#include "bench/core/report.h"

namespace meshloom::bench {

// Header, roofline, heat map of shapes by variants, bars against the baseline, table that sorts. Dark on
// light.
std::string to_html(const Report& report);

// `text` may stand inside a <script> element: no "</", no "<!--".
std::string safe_in_script(const std::string& text);

}  // namespace meshloom::bench
