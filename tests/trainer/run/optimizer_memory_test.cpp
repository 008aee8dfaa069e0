// Runs that take less memory for parameters, gradients and moments: they are resumed, sampled and exported as others are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;

constexpr const char* kEightBits = "--replace 'AdamW=AdamW8bit{}' ";
constexpr const char* kInBackward = "--set learner.clip_norm=0 --set optimizer_in_backward=true ";
constexpr const char* kNarrow = "--set param_dtype=bf16 ";

std::string train(const Scratch& scratch, const std::string& run, const std::string& more) {
  const Outcome outcome = meshloom(
      "train tiny --device cpu --sample 10 --set batch=2 --set sequence=32 --set eval_batches=1 "
      "--set checkpoint_every=6 --data " +
      scratch.path("text") + " --out " + scratch.path(run) + " " + more);
  EXPECT_EQ(outcome.code, 0) << more << outcome.err;
  return scratch.path(run);
}

TEST(LessMemory, IsResumedToTheSameBits) {
  const Scratch scratch;
  scratch.file("text", sample_text(20000));
  int number = 0;
  for (const std::string& fields :
       {std::string(kEightBits), std::string(kNarrow), std::string(kEightBits) + kNarrow + kInBackward}) {
    SCOPED_TRACE(fields);
    const std::string name = std::to_string(number++);
    const std::string whole = train(scratch, "whole" + name, fields + "--steps 12"),
                      parts = train(scratch, "parts" + name, fields + "--steps 6");
    train(scratch, "parts" + name, fields + "--steps 12 --resume");
    EXPECT_EQ(losses(parts), losses(whole));
    for (const char* file : {"/step-00000012/model.safetensors", "/step-00000012/optimizer.safetensors"})
      EXPECT_EQ(read_text(parts + file), read_text(whole + file)) << file;
  }
}

TEST(LessMemory, ParametersInBf16GoInAndOut) {
  const Scratch scratch;
  scratch.file("text", sample_text(20000));
  const std::string wide = train(scratch, "wide", "--steps 6"),
                    narrow = train(scratch, "narrow", std::string(kNarrow) + "--steps 6");
  EXPECT_THAT(read_text(narrow + "/step-00000006/model.safetensors"), HasSubstr("\"BF16\""));
  EXPECT_LT(std::filesystem::file_size(narrow + "/step-00000006/model.safetensors"),
            std::filesystem::file_size(wide + "/step-00000006/model.safetensors") * 6 / 10);
  // Either kind starts from the other.
  train(scratch, "from_wide", std::string(kNarrow) + "--steps 2 --init " + wide);
  train(scratch, "from_narrow", "--steps 2 --init " + narrow);
  for (const std::string& run : {narrow, wide}) {
    const Outcome said = meshloom("generate --checkpoint " + run + " --prompt stone --tokens 8 --device cpu");
    EXPECT_EQ(said.code, 0) << said.err;
    const Outcome exported = meshloom("export --checkpoint " + run + " --out " + run + "-out --dtype bf16");
    EXPECT_EQ(exported.code, 0) << exported.err;
  }
  const Outcome shown = meshloom("checkpoint " + narrow);
  EXPECT_EQ(shown.code, 0) << shown.err;
  const Outcome other =
      meshloom("train tiny --device cpu --set batch=2 --set sequence=32 --set eval_batches=1 --data " +
               scratch.path("text") + " --steps 8 --resume --out " + narrow);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("param_dtype"));
}

}  // namespace
}  // namespace meshloom::tests
