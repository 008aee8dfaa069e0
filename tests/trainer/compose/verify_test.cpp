// Planted violations: each must be found, in the right words.
#include "kernels/program/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/matmul/matmul.h"
#include "tests/trainer/compose/support.h"

namespace meshloom::tests {
namespace {

using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using ::testing::HasSubstr;

// y = silu(state); state' = relu(x) w
struct Planted : ::testing::Test {
  Program program;
  kernels::Builder builder{catalog(), program};
  Tensor x, w, state, y, z;
  Planted() {
    program.name = "planted";
    builder.path = "somewhere";
    x = builder.input("x", {kernels::DType::f32, {4, 3}}, Role::input, {"batch", ""});
    w = builder.input("w", {kernels::DType::f32, {3, 5}}, Role::parameter);
    state = builder.input("state", {kernels::DType::f32, {4, 5}}, Role::state);
    y = kernels::silu(state);
    z = kernels::matmul(kernels::relu(x), w);
    builder.output(y);
    builder.output(z);
    builder.donate(state, z);
  }
  std::string complaint() const {
    try {
      kernels::verify(program, catalog(), "planting");
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }
};

TEST_F(Planted, NothingToComplainAbout) { EXPECT_EQ(complaint(), "nothing"); }

TEST_F(Planted, UseBeforeDefinition) {
  std::swap(program.calls[1], program.calls[2]);
  EXPECT_THAT(complaint(), HasSubstr("defined before its use"));
  EXPECT_THAT(complaint(), HasSubstr("after planting"));
  EXPECT_THAT(complaint(), HasSubstr("in somewhere"));
}

TEST_F(Planted, TwoDefinitions) {
  program.calls.push_back(program.calls[0]);
  program.donations.clear();
  EXPECT_THAT(complaint(), HasSubstr("defined once"));
}

TEST_F(Planted, UnknownOp) {
  program.calls[0].op = "sillu";
  EXPECT_THAT(complaint(), HasSubstr("op must be known"));
}

TEST_F(Planted, WrongOutputType) {
  program.value(z.id).type.shape = {5, 4};
  EXPECT_THAT(complaint(), HasSubstr("op's contract"));
}

TEST_F(Planted, TypesTheOpDoesNotTake) {
  program.value(w.id).type.shape = {4, 5};
  EXPECT_THAT(complaint(), HasSubstr("matmul"));
}

TEST_F(Planted, MissingOutput) {
  program.outputs.push_back(99);
  EXPECT_THAT(complaint(), HasSubstr("output"));
}

TEST_F(Planted, DonatedInputReadAfterItWasOverwritten) {
  program.calls.push_back(program.calls[0]);
  program.calls.erase(program.calls.begin());
  EXPECT_THAT(complaint(), HasSubstr("overwritten"));
}

TEST_F(Planted, DonatedInputReadThroughAViewAfterItWasOverwritten) {
  const Tensor flat = kernels::reshape(state, {20});
  std::rotate(program.calls.begin(), program.calls.end() - 1, program.calls.end());
  EXPECT_EQ(complaint(), "nothing");
  builder.output(kernels::silu(flat));
  EXPECT_THAT(complaint(), HasSubstr("overwritten"));
}

TEST_F(Planted, DonationOfAnotherType) {
  program.donations[0].input = x.id;
  EXPECT_THAT(complaint(), HasSubstr("one type"));
}

TEST_F(Planted, DonationOfWhatIsNoInput) {
  program.donations[0].input = y.id;
  EXPECT_THAT(complaint(), HasSubstr("program input"));
}

TEST_F(Planted, DonatedTwice) {
  program.donations.push_back({state.id, z.id});
  EXPECT_THAT(complaint(), HasSubstr("once"));
}

TEST_F(Planted, AxesOfAnotherRank) {
  program.value(z.id).axes = {"batch"};
  EXPECT_THAT(complaint(), HasSubstr("axis name per dimension"));
}

}  // namespace
}  // namespace meshloom::tests
