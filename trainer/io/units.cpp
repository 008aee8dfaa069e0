#include "trainer/io/units.h"

#include <fmt/format.h>

namespace meshloom::trainer {

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", bytes, *unit == 'B' || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2, unit);
}

std::string count_text(double count) {
  const char* unit = "";
  for (const char* next : {" k", " M", " G", " T", " P", " E"}) {
    if (count < 1000) break;
    count /= 1000;
    unit = next;
  }
  return fmt::format("{:.{}f}{}", count, !*unit || count >= 100 ? 0 : count >= 10 ? 1 : 2, unit);
}

}  // namespace meshloom::trainer
