#include "trainer/compose/passes/fuse.h"

#include <utility>

namespace meshloom::trainer {

kernels::Program fuse(kernels::Program program, const kernels::Catalog& catalog) {
  program = simplify(std::move(program), catalog);
  program = fuse_epilogues(std::move(program), catalog);
  program = fuse_elementwise(std::move(program), catalog);
  return simplify(std::move(program), catalog);
}

}  // namespace meshloom::trainer
