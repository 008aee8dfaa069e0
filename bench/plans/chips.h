// The chips and networks of published runs, by the names that tables give chips.
#pragma once

#include <string>

#include "hal/profile.h"

namespace meshloom::bench {

struct Chip {
  std::string begins, contains;  // what the name begins with and contains
  std::string profile;           // of hal/profiles
  std::string family;            // chips whose efficiencies are alike
  double memory_rate;            // bytes/s where the chip is another than the profile's; 0 = the same
  // Bytes/s of a chip, one direction: inside a box or slice of `box` chips, and between them.
  double inner, outer;
  int box;
  std::string source;
};

// nullptr when no chip has such a name.
const Chip* find_chip(const std::string& name);
// The names that are known, for messages.
std::string known_chips();

}  // namespace meshloom::bench
