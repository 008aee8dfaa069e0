// A small program under construction, for tests of passes.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/program/builder.h"
#include "kernels/program/verify.h"
#include "tests/trainer/compose/support.h"
#include "trainer/compose/passes/fuse.h"

namespace meshloom::tests {

struct Sketch {
  kernels::Program program;
  kernels::Builder builder{catalog(), program};

  kernels::Tensor input(const std::string& name, kernels::Shape shape,
                        kernels::Role role = kernels::Role::parameter) {
    return builder.input(name, {kernels::DType::f32, std::move(shape)}, role);
  }
  int count(const std::string& op) const {
    return static_cast<int>(std::count_if(program.calls.begin(), program.calls.end(),
                                          [&](const kernels::Call& call) { return call.op == op; }));
  }
  void fuse() {
    program = trainer::fuse(std::move(program), catalog());
    kernels::verify(program, catalog(), "fuse");
  }
};

}  // namespace meshloom::tests
