// What a model writes after.
#pragma once

#include <cstdint>
#include <vector>

namespace meshloom::trainer {

struct Prompt {
  std::vector<std::int32_t> tokens;       // that it goes on from
  std::vector<std::int32_t> source = {};  // that its encoder reads; empty where it has none
};

}  // namespace meshloom::trainer
