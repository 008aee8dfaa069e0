#include "kernels/program/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/catalog.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/matmul/matmul.h"
#include "tests/message_of.h"

namespace meshloom::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::message_of;

constexpr std::int64_t kWraps = 576460752303423788;  // times 64 is 2^65 - 1280: wrapped, a small size

TEST(Sizes, ProductsThatWrapAreErrors) {
  EXPECT_EQ(elements({}), 1);
  EXPECT_EQ(elements({3, 0, 5}), 0);
  EXPECT_EQ(elements({std::int64_t{1} << 24, std::int64_t{1} << 24}), kMaxElements);
  EXPECT_EQ(elements({std::int64_t{1} << 62, 8, 0}), 0);
  for (const Shape& shape : {Shape{kWraps, 64},
                             {kMaxElements, 2},
                             {kMaxElements + 1},
                             {std::int64_t{1} << 32, std::int64_t{1} << 32},
                             {std::int64_t{1} << 62, 4},
                             {std::int64_t{1} << 62, std::int64_t{1} << 62},
                             {-1, 5},
                             {-3, -3}}) {
    EXPECT_THAT(message_of([&] { elements(shape); }),
                AllOf(HasSubstr("at most 2^48"), HasSubstr(to_string(shape))));
    EXPECT_THROW((TensorType{DType::f32, shape}.bytes()), hal::Error);
  }
  EXPECT_EQ((TensorType{DType::f32, {kMaxElements}}.bytes()), 4 * kMaxElements);
  EXPECT_EQ(product("heads", {32, 128}), 4096);
  EXPECT_THAT(message_of([] {
                product("a, heads", {kWraps, 64});
              }),
              AllOf(HasSubstr("a, heads: "), HasSubstr("576460752303423788 x 64")));
  EXPECT_THROW(product("heads", {-1}), hal::Error);
  EXPECT_EQ(sum("bytes", 1, 2), 3);
  EXPECT_THAT(message_of([] { sum("bytes", std::int64_t{1} << 62, std::int64_t{1} << 62); }),
              HasSubstr("below 2^63"));
}

class SizesOfPrograms : public testing::Test {
 protected:
  SizesOfPrograms() { add_contracts(catalog_); }
  Tensor input(const std::string& name, Shape shape) {
    return builder_.input(name, {DType::f32, std::move(shape)}, Role::input);
  }

  Catalog catalog_;
  Program program_;
  Builder builder_{catalog_, program_};
};

TEST_F(SizesOfPrograms, ErrorsNameTheValueAndTheShape) {
  EXPECT_THAT(message_of([&] {
                input("model.embedding.weight", {kWraps, 64});
              }),
              AllOf(HasSubstr("'model.embedding.weight'"), HasSubstr("f32(576460752303423788, 64)")));
  // Results of what is small enough itself.
  builder_.path = "model/head";
  const std::int64_t side = std::int64_t{1} << 30;
  EXPECT_THAT(message_of([&] {
                matmul(input("a", {side, 1}), input("b", {1, side}));
              }),
              AllOf(HasSubstr("model/head: matmul"), HasSubstr("(1073741824, 1073741824)")));
  EXPECT_THAT(message_of([&] {
                constant(builder_, 1, {side, side});
              }),
              HasSubstr("(1073741824, 1073741824)"));
  // Pairs of queries and keys are in no tensor, but are counted.
  EXPECT_THAT(message_of([&] {
                flash_attention(input("q", {1, side, 1, 1}), input("k", {1, side, 1, 1}),
                                input("v", {1, side, 1, 1}));
              }),
              AllOf(HasSubstr("queries x keys"), HasSubstr("1073741824 x 1073741824")));
}

}  // namespace
}  // namespace meshloom::kernels
