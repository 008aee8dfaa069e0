// Programs as text: one line per value or call, stable enough to keep as a golden file.
#pragma once

#include <string>

#include "kernels/program/program.h"

namespace meshloom::kernels {

std::string print(const Program& program);

}  // namespace meshloom::kernels
