// Variants that need a proof: a wrong one is found before it is used, a right one is taken, and both are
// remembered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "hal/registry.h"
#include "kernels/core/self_test.h"
#include "trainer/compose/passes/select.h"

namespace meshloom::tests {
namespace {

using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

void (*encode_reference)(const EncodeArgs&) = nullptr;
int recorded = 0;  // calls of planted variants

Fit always(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }

void encode_right(const EncodeArgs& args) {
  ++recorded;
  encode_reference(args);
}

// Wrong by a power of two in the last element.
void encode_wrong(const EncodeArgs& args) {
  encode_right(args);
  args.commands.barrier();
  args.commands.host_call(
      [](std::span<const hal::HostRange> ranges) { ranges[0].data[ranges[0].bytes - 1] ^= std::byte{1}; },
      std::vector<hal::Binding>{
          {args.outputs[0].buffer, args.outputs[0].offset, args.outputs[0].bytes, hal::Access::read_write}},
      args.label);
}

void encode_wrong_on_bf16(const EncodeArgs& args) {
  args.call.inputs[0].dtype == hal::DType::bf16 ? encode_wrong(args) : encode_right(args);
}

void encode_throwing(const EncodeArgs&) {
  throw hal::Error("the driver", "must compile the kernel", "a lost device");
}

class SelfTest : public testing::Test {
 protected:
  SelfTest() {
    recorded = 0;
    std::filesystem::remove_all(folder_);
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    encode_reference = catalog_.find("matmul", "", "reference")->encode;
  }
  ~SelfTest() override { std::filesystem::remove_all(folder_); }

  void plant(const char* name, void (*encode)(const EncodeArgs&), bool low_precision = false) {
    catalog_.add_first(kernels::Variant{.op = "matmul",
                                        .backend = "cpu",
                                        .name = name,
                                        .kinds = {hal::ProfileKind::host},
                                        .about = "planted by a test",
                                        .fit = always,
                                        .encode = encode,
                                        .low_precision = low_precision,
                                        .needs_self_test = true});
  }
  // A device that nobody has examined, and what the examination says.
  std::vector<kernels::SelfTestFailure> examine() {
    device_ = unproved_.open("cpu");
    kernels::SelfTest self_test{hal::DiskCache(folder_)};
    return self_test.run(*device_, catalog_);
  }
  std::string chosen(kernels::DType dtype = kernels::DType::f32) {
    const kernels::Case test = *std::find_if(cases_.begin(), cases_.end(),
                                             [](const kernels::Case& item) { return item.name == "tail"; });
    kernels::Program program;
    kernels::Builder builder(catalog_, program);
    std::vector<kernels::Tensor> inputs;
    for (kernels::TensorType type : test.inputs) {
      type.dtype = dtype;
      inputs.push_back(builder.input("in" + std::to_string(inputs.size()), type, kernels::Role::input));
    }
    for (kernels::Tensor output : builder.call("matmul", inputs, test.attrs)) builder.output(output);
    trainer::VariantSelector selector(catalog_, device_->info(), {});
    return selector.select(program).calls.front().choice->variant->name;
  }
  std::string refusal(const char* name) {
    const kernels::Case test = cases_.front();
    const std::vector<kernels::TensorType> outputs =
        catalog_.contract("matmul").infer(test.inputs, test.attrs);
    return catalog_.find("matmul", "cpu", name)
        ->answer({"matmul", test.inputs, outputs, test.attrs}, device_->info())
        .reason;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("meshloom-proof-" + std::to_string(::getpid()));
  kernels::Catalog catalog_, unproved_catalog_;
  hal::Registry registry_, unproved_;
  std::vector<kernels::Case> cases_;
  std::unique_ptr<hal::Device> device_;

  void SetUp() override {
    kernels::add_contracts(unproved_catalog_);
    register_backends(unproved_, unproved_catalog_);  // knows nothing of what is planted
    cases_ = catalog_.contract("matmul").cases();
  }
};

TEST_F(SelfTest, ARightVariantIsTaken) {
  plant("right", encode_right);
  EXPECT_THAT(examine(), IsEmpty());
  EXPECT_GT(recorded, 1);
  EXPECT_EQ(chosen(), "right");
  EXPECT_EQ(device_->peak_bytes(), 0);
}

TEST_F(SelfTest, AWrongVariantFailsItWithItsDeviation) {
  plant("wrong", encode_wrong);
  const auto found = examine();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].variant, "matmul wrong");
  EXPECT_THAT(found[0].found, AllOf(HasSubstr("times what is allowed"), HasSubstr("got")));
  EXPECT_NE(chosen(), "wrong");
  EXPECT_THAT(refusal("wrong"), HasSubstr("failed its self-test with this driver"));
}

TEST_F(SelfTest, EveryDtypeThatAVariantTakesItselfIsTried) {
  plant("half-right", encode_wrong_on_bf16, true);
  ASSERT_EQ(examine().size(), 1u);
  EXPECT_NE(chosen(kernels::DType::f16), "half-right");
}

TEST_F(SelfTest, WhatDoesNotCompileFailsItToo) {
  plant("throwing", encode_throwing);
  const auto found = examine();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].found, HasSubstr("a lost device"));
  // It may come back: only what was computed is remembered.
  EXPECT_FALSE(std::filesystem::exists(folder_) && !std::filesystem::is_empty(folder_));
}

TEST_F(SelfTest, WithoutAVerdictThereIsNoTrust) {
  plant("right", encode_right);
  device_ = unproved_.open("cpu");
  EXPECT_NE(chosen(), "right");
  EXPECT_THAT(refusal("right"), HasSubstr("has not passed its self-test"));
}

TEST_F(SelfTest, VerdictsAreRemembered) {
  plant("wrong", encode_wrong);
  ASSERT_EQ(examine().size(), 1u);
  const int first = recorded;
  const auto again = examine();  // another process would see the same
  EXPECT_EQ(recorded, first);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].found, refusal("wrong").substr(refusal("wrong").find("case")));
}

TEST_F(SelfTest, OpeningADeviceIsEnough) {
  plant("right", encode_right);
  plant("wrong", encode_wrong);
  testing::internal::CaptureStderr();
  device_ = registry_.open("cpu");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("matmul wrong failed its self-test and is not used"), HasSubstr("cpu")));
  EXPECT_EQ(chosen(), "right");
}

}  // namespace
}  // namespace meshloom::tests
