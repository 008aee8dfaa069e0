// A rule that names what is not there fails with the file and the line, in --lint and when a run starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/run/binary.h"
#include "trainer/recipes/recipe.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

class RulePlaces : public testing::Test {
 protected:
  // The file of `tiny` with another field at its end. Returns the line of the field's first line.
  int write(const std::string& field) {
    std::string text = trainer::print_recipe(trainer::tiny());
    for (const char* empty : {"  mesh_rules = []\n", "  kernels = []\n"})
      if (const std::size_t at = text.find(empty); at != std::string::npos)
        text.erase(at, std::string(empty).size());
    text.resize(text.rfind('}'));
    const auto line = 1 + std::count(text.begin(), text.end(), '\n');
    file_ = scratch_.file("my.recipe", text + field + "}\n");
    return static_cast<int>(line);
  }
  // "FILE:LINE, "
  std::string at(int line) const { return file_ + ":" + std::to_string(line) + ", "; }
  Outcome lint() { return meshloom("config --config " + file_ + " --device cpu --lint"); }
  Outcome plan(const std::string& more = {}) {
    return meshloom("plan --config " + file_ + " --device cpu" + more);
  }

  Scratch scratch_;
  std::string file_;
};

TEST_F(RulePlaces, AreOfMissingVariantsProfilesAndFields) {
  struct Case {
    const char* modifier;
    const char* said;
  };
  for (const Case& one : {Case{"SetKernel { op = matmul variant = fastest }", "the variant must be one of "},
                          Case{"Chain { modifiers = [SetKernel { op = matmul variant = fastest }] }",
                               "the variant must be one of "},
                          Case{"SetProfile { profile = h1000 }", "h1000"},
                          Case{"SetField { path = modle value = \"1\" }", "modle"}}) {
    const int line = write(
        "  mesh_rules = [\n    MeshRule {\n      pattern = \".*\"\n      modifiers = [\n"
        "        SetAccumulation { accumulation = 2 },\n        " +
        std::string(one.modifier) + "]\n    }]\n");
    const Outcome linted = lint(), planned = plan();
    EXPECT_EQ(linted.code, 1) << linted.err;
    EXPECT_THAT(linted.out, HasSubstr(at(line + 5) + "mesh_rules[0].modifiers[1]"));
    EXPECT_THAT(linted.out, HasSubstr(one.said));
    EXPECT_EQ(planned.code, 1) << one.modifier;
    EXPECT_THAT(planned.err, HasSubstr(at(line + 5) + "mesh_rules[0].modifiers[1]"));
    EXPECT_THAT(planned.err, HasSubstr(one.said));
    // Rules of the command line stand before those of the file, and do not move its lines.
    EXPECT_THAT(meshloom("config --config " + file_ + " --device cpu --lint --rule 'null-.* => Fit{}'").out,
                HasSubstr(at(line + 5) + "mesh_rules[0].modifiers[1]"))
        << one.modifier;
  }
}

TEST_F(RulePlaces, AreOfWrongSyntaxAndOfKernelRules) {
  const int line = write("  kernels = [\n    KernelRule { op = matmul variant = fastest }]\n");
  EXPECT_THAT(lint().out, HasSubstr(at(line + 1) + "kernels[0]: the variant must be one of "));
  EXPECT_THAT(plan().err, HasSubstr(at(line + 1) + "kernels[0]: the variant must be one of "));
  EXPECT_THAT(plan(" --set 'kernels=[]'").code, 0);
  const int wrong = write("  mesh_rules = [MeshRule {\n    pattern = \".*\" modifiers = [SetKernal {}] }]\n");
  EXPECT_THAT(lint().err,
              HasSubstr(file_ + ":" + std::to_string(wrong + 1) + ": there is no class 'SetKernal'"));
}

}  // namespace
}  // namespace meshloom::tests
