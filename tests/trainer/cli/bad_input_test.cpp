// What users do wrong: every case gives one line on stderr that names the place and the rule, and exits
// non-zero.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

struct BadInput {
  std::string name, arguments;     // {data} is a good text, {dir} a scratch directory
  std::vector<std::string> words;  // that the line must hold
  std::string before = {};         // shell, in front
  int code = 1;
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

std::string filled(std::string text, const std::string& dir) {
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"{data}", dir + "/text"}, {"{dir}", dir}})
    for (std::size_t at; (at = text.find(key)) != std::string::npos;) text.replace(at, key.size(), value);
  return text;
}

class BadInputs : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputs, OneLine) {
  const BadInput& bad = GetParam();
  const Scratch scratch;
  scratch.file("text", sample_text(4000));
  scratch.file("short", "too short");
  scratch.file("empty", "");
  scratch.file("not.model", "this is no model");
  scratch.file("unknown-field.recipe", "Trainer {\n  batch = 2\n  bacth = 3\n}\n");
  scratch.file("wrong-type.recipe", "Trainer {\n  batch = \"four\"\n}\n");
  scratch.file("range.recipe", "Trainer {\n  batch = 0\n}\n");
  scratch.file("syntax.recipe", "Trainer {\n  batch = \n");
  scratch.file("class.recipe", "Trainr { }\n");
  scratch.file("other-root.recipe", "Mesh { }\n");
  scratch.file("incomplete.recipe", "Trainer { batch = 2 }\n");
  scratch.file("future.recipe", "# meshloom recipe, format 9\nTrainer { }\n");
  scratch.file("binary.recipe", std::string("\x7f\x45\x4c\x46\x00\x01", 6));
  std::filesystem::create_directory(scratch.path("full"));
  const Outcome outcome = meshloom(filled(bad.arguments, scratch.path()), filled(bad.before, scratch.path()));
  EXPECT_EQ(outcome.code, bad.code) << outcome.err;
  const std::vector<std::string> lines = outcome.errors();
  ASSERT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_TRUE(lines[0].starts_with("meshloom: ")) << lines[0];
  for (const std::string& word : bad.words)
    EXPECT_NE(lines[0].find(filled(word, scratch.path())), std::string::npos)
        << "'" << word << "' is not in: " << lines[0];
}

const std::string kTrain = "train tiny --device cpu --data {data} --out {dir}/run --sample 0 --steps 2 ";

// Output must not end up in a file of the run that got the free descriptor.
TEST(StandardStreams, MayBeClosed) {
  const Scratch scratch;
  const Outcome outcome =
      meshloom("train tiny --device cpu --steps 2 --data " + scratch.file("text", sample_text(4000)) +
               " --out " + scratch.path("run") + " >&- 2>&-");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(read_text(scratch.path("run") + "/.lock"), "");
}

// A full disk below a log ends no run.
TEST(StandardStreams, ErrorsMayFindNoRoom) {
  const Scratch scratch;
  const Outcome noted = meshloom(
      "train tiny --device cpu --steps 2 --sample 0 --modify Quantize{} --modify SetDType{dtype=f32} "
      "--data " +
      scratch.file("text", sample_text(4000)) + " --out " + scratch.path("run") + " 2>/dev/full");
  EXPECT_EQ(noted.code, 0);
  EXPECT_EQ(meshloom("trian 2>/dev/full").code, 2);
}

TEST(StandardStreams, AReaderMayLeaveEarly) {
  const Outcome head = meshloom("kernels --json | head -n 1");
  EXPECT_EQ(head.err, "");
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, BadInputs,
    testing::Values(
        BadInput{"no_command", "", {"command line"}, "", 2},
        BadInput{"unknown_command", "trian", {"command line", "trian"}, "", 2},
        BadInput{"unknown_option",
                 "train tiny --dataa x",
                 {"command line", "'--dataa'", "did you mean '--data'", "(see meshloom train --help)"},
                 "",
                 2},
        BadInput{"unknown_option_of_bench",
                 "bench tune tiny --budgett 3",
                 {"'--budgett'", "did you mean '--budget'", "(see meshloom bench tune --help)"},
                 "",
                 2},
        BadInput{"memory_below_0",
                 "plan tiny --memory -1",
                 {"--memory", "must be a whole number of bytes", "found '-1'"},
                 "",
                 2},
        BadInput{"part_of_a_gib", "plan tiny --memory 1.5GiB", {"--memory", "found '1.5GiB'"}, "", 2},
        BadInput{"more_than_a_recipe", "plan tiny gpt2-124m", {"nothing more", "'gpt2-124m'"}, "", 2},
        BadInput{"steps_not_a_number", "train tiny --steps many", {"--steps", "many"}, "", 2},
        BadInput{"steps_zero",
                 "train tiny --steps 0",
                 {"--steps", "must be an integer from 1 to", "found '0'"},
                 "",
                 2},
        BadInput{
            "tokens_below_0", "generate --tokens -1", {"--tokens", "from 0 to 2^63 - 1; found '-1'"}, "", 2},
        BadInput{"seed_too_large",
                 "generate --seed 99999999999999999999",
                 {"--seed", "found '99999999999999999999'"},
                 "",
                 2},
        BadInput{"too_many_layers",
                 "plan tiny --device null --set model.decoder.stack.num_layers=100000000",
                 {"num_layers must be at most 4096"}},
        BadInput{"empty_modify", "config tiny --modify ''", {"--modify", "must name a modifier"}},
        BadInput{"against_nothing", "config tiny --against tinny", {"--against", "recipe's name", "tinny"}},
        BadInput{"steps_and_epochs",
                 "train tiny --steps 3 --epochs 1 --data {data}",
                 {"--steps", "--epochs"},
                 "",
                 2},
        BadInput{"epochs_zero",
                 "train tiny --epochs 0 --data {data}",
                 {"--epochs", "above 0", "found '0'"},
                 "",
                 2},
        BadInput{"epochs_of_nothing", "config tiny --epochs 1", {"--epochs", "--data", "no file"}},
        BadInput{"batch_twice", "config tiny --batch 2 --set batch=3", {"--batch", "--set batch", "both"}},
        BadInput{"rate_twice",
                 "config tiny --lr 1 --set 'learner=AdamW{peak_learning_rate=2}'",
                 {"--lr", "--set learner.peak_learning_rate", "both"}},
        BadInput{"steps_twice",
                 "train tiny --epochs 2 --set steps=3 --data {data}",
                 {"--epochs", "--set steps", "both"}},
        BadInput{"rate_below_0", "config tiny --lr -1", {"learner.peak_learning_rate", "at least 0", "-1"}},
        BadInput{"no_such_class", "classes Maks", {"classes", "did you mean 'Mask'", "'Maks'"}},
        BadInput{"infinite_alpha",
                 "plan tiny --device null --modify 'Adapt{with=Lora{rank=2 alpha=inf}}'",
                 {"alpha must be positive and finite"}},
        BadInput{"full_standard_output", "config tiny >/dev/full", {"standard output", "No space left"}},
        BadInput{"full_for_much_output", "kernels --json >/dev/full", {"standard output", "No space left"}},
        BadInput{"full_for_help", "train --help >/dev/full", {"standard output: must accept the output"}},
        BadInput{"recipe_and_config", "train tiny --config x --data {data}", {"recipe", "--config"}, "", 2},
        BadInput{"no_recipe", "train --data {data}", {"recipe", "neither"}},
        BadInput{"unknown_recipe", "train tiyn --data {data}", {"recipe", "tiyn", "did you mean 'tiny'"}},
        BadInput{"no_prompt", "generate --checkpoint {dir}", {"--prompt"}, "", 2},
        BadInput{
            "resume_without_out", "train tiny --data {data} --device cpu --resume", {"--resume", "--out"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Recipes, BadInputs,
    testing::Values(
        BadInput{"missing_config", "config --config {dir}/none", {"{dir}/none", "No such file"}},
        BadInput{"unknown_field",
                 "config --config {dir}/unknown-field.recipe",
                 {"unknown-field.recipe:3", "bacth", "did you mean 'batch'"}},
        BadInput{"wrong_type", "config --config {dir}/wrong-type.recipe", {"wrong-type.recipe:2", "integer"}},
        BadInput{"syntax", "config --config {dir}/syntax.recipe", {"syntax.recipe"}},
        BadInput{
            "unknown_class", "config --config {dir}/class.recipe", {"class.recipe:1", "Trainr", "Trainer"}},
        BadInput{
            "other_root", "config --config {dir}/other-root.recipe", {"a recipe must be a Trainer", "Mesh"}},
        BadInput{"incomplete",
                 "train --config {dir}/incomplete.recipe --device cpu --data {data} --out {dir}/run",
                 {"model"}},
        BadInput{"another_version", "config --config {dir}/future.recipe", {"future.recipe:1", "format 9"}},
        BadInput{"binary_config", "config --config {dir}/binary.recipe", {"binary.recipe:1"}},
        BadInput{"directory_config", "config --config {dir}", {"{dir}", "a directory"}},
        BadInput{
            "set_unknown_path", "config tiny --set modle.vocab_size=3", {"modle", "did you mean 'model'"}},
        BadInput{"set_unknown_field",
                 "config tiny --set learner.lr=1",
                 {"learner.lr", "AdamW has no field 'lr'", "it has peak_learning_rate, clip_norm"}},
        BadInput{"set_below_range",
                 "config tiny --set model.decoder.stack.num_layers=-1",
                 {"model.decoder.stack.num_layers: Stack.num_layers must be at least 1; found -1"}},
        BadInput{"set_child_below_range",
                 "config tiny --set 'model.decoder.norm=RMSNorm{eps=-1}'",
                 {"model.decoder.norm: RMSNorm.eps must be at least 0; found -1"}},
        BadInput{"set_no_number",
                 "config tiny --set learner.beta1=nan",
                 {"learner.beta1", "at least 0 and below 1", "nan"}},
        BadInput{"set_unknown_word",
                 "config tiny --set model.decoder.stack.layer.attention.positions.pairing=quarter",
                 {"pairing must be half or interleaved", "'quarter'"}},
        BadInput{"modify_out_of_range",
                 "config tiny --modify 'SetWhere{class=Stack field=num_layers value=0}'",
                 {"num_layers must be at least 1"}},
        BadInput{"file_out_of_range",
                 "config --config {dir}/range.recipe",
                 {"range.recipe:2: Trainer.batch must be at least 1; found 0"}},
        BadInput{"set_without_value", "config tiny --set batch", {"--set", "PATH=VALUE"}},
        BadInput{"set_wrong_type", "config tiny --set batch=many", {"batch", "integer", "many"}},
        BadInput{"set_out_of_range", "config tiny --set batch=99999999999999999999", {"batch", "64 bits"}},
        BadInput{"replace_nothing", "config tiny --replace LayerNorm=RMSNorm", {"LayerNorm"}},
        BadInput{"replace_unknown", "config tiny --replace RMSNorm=LayrNorm", {"LayrNorm", "LayerNorm"}},
        BadInput{"rule_form", "config tiny --rule cpu", {"--rule", "=>"}},
        BadInput{"rule_regex",
                 "config tiny --device cpu --rule '( => SetAccumulation{accumulation=2}'",
                 {"mesh_rules[0]", "regular expression"}},
        BadInput{"rule_modifier",
                 "config tiny --rule 'cpu.* => SetAcumulation{accumulation=2}'",
                 {"SetAcumulation", "SetAccumulation"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values, BadInputs,
    testing::Values(
        BadInput{"batch_zero", kTrain + "--set batch=0", {"batch", "at least 1", "0"}},
        BadInput{"batch_negative", kTrain + "--set batch=-4", {"batch", "-4"}},
        BadInput{
            "accumulation_divides", kTrain + "--set accumulation=3", {"accumulation", "divide batch = 4"}},
        BadInput{"dtype", kTrain + "--set dtype=fp8", {"dtype", "fp8", "f32, bf16 or f16"}},
        BadInput{
            "mesh", kTrain + "--set mesh.data=8", {"mesh data=8", "a multiple of its 8 ranks", "4 rows"}},
        BadInput{"eval_fraction", kTrain + "--set input.eval_fraction=1.5", {"input.eval_fraction", "1.5"}},
        BadInput{"learning_rate_high",
                 kTrain + "--set learner.peak_learning_rate=1e30",
                 {"learning_rate", "below 1e6"}},
        BadInput{"learning_rate", kTrain + "--set learner.peak_learning_rate=-1", {"learning_rate", "-1"}},
        BadInput{"heads", kTrain + "--set model.decoder.stack.layer.attention.num_heads=5", {"attention"}},
        BadInput{"kernel_unknown",
                 kTrain + "--set 'kernels=[KernelRule{op=matmul variant=fastest}]'",
                 {"matmul", "fastest"}},
        BadInput{"kernel_op_unknown",
                 kTrain + "--set 'kernels=[KernelRule{op=matmull variant=naive}]'",
                 {"matmull"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Data, BadInputs,
    testing::Values(BadInput{"no_data", "train tiny --device cpu --out {dir}/run", {"data", "--data"}},
                    BadInput{"missing_data",
                             "train tiny --device cpu --data {dir}/none --out {dir}/run",
                             {"{dir}/none", "No such file"}},
                    BadInput{"endless_data",
                             "train tiny --device cpu --data /dev/zero --out {dir}/run",
                             {"/dev/zero", "must be a file", "a device"}},
                    BadInput{"empty_data",
                             "train tiny --device cpu --data {dir}/empty --out {dir}/run",
                             {"{dir}/empty", "empty"}},
                    BadInput{"empty_directory_data",
                             "train tiny --device cpu --data {dir}/full --out {dir}/run",
                             {"{dir}/full", "at least one file"}},
                    BadInput{"short_data",
                             "train tiny --device cpu --data {dir}/short --out {dir}/run",
                             {"{dir}/short", "sequence + 1 = 65", "9 tokens"}},
                    BadInput{"sequence_longer_than_corpus",
                             kTrain + "--set sequence=8000",
                             {"sequence + 1 = 8001", "4000"}},
                    BadInput{"vocabulary", kTrain + "--set model.vocab_size=100", {"vocabulary of 100"}},
                    BadInput{"bad_sentencepiece",
                             kTrain + "--set 'input.tokenizer=SentencePiece{model=\"{dir}/not.model\"}'",
                             {"not.model"}},
                    BadInput{"missing_sentencepiece",
                             kTrain + "--set 'input.tokenizer=SentencePiece{model=\"{dir}/none\"}'",
                             {"{dir}/none", "No such file"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Hardware, BadInputs,
    testing::Values(
        BadInput{"unknown_backend", "plan tiny --device cuda", {"cuda", "backend"}},
        BadInput{"device_index", "plan tiny --device cpu:7", {"cpu:7", "index"}},
        BadInput{"device_index_text", "plan tiny --device cpu:x", {"cpu:x"}},
        BadInput{"unknown_profile", "plan tiny --device cpu --as h1000", {"h1000", "h100"}},
        BadInput{"selector_form", "plan tiny --selector cpu", {"selector 'cpu'", "BACKEND-PROFILE-N"}},
        BadInput{"selector_backend", "plan tiny --selector cuda-h100-1", {"selector", "cuda"}},
        BadInput{"selector_profile", "plan tiny --selector cpu-h1000-1", {"h1000", "h100"}},
        BadInput{"selector_count", "plan tiny --selector cpu-h100-0", {"selector", "at least 1"}},
        BadInput{"selector_contradicts",
                 "plan tiny --selector cpu-h100-1 --as trn2",
                 {"selector", "--as", "trn2"}},
        BadInput{"profile_too_small",
                 "plan llama2-7b --device null --as tpu-v5e",
                 {"memory", "tpu-v5e", "out of memory"},
                 "",
                 2},
        BadInput{"profile_too_small_to_train",
                 "train llama2-7b --device cpu --as tpu-v5e --set sequence=64 --data {data} --out {dir}/run",
                 {"memory"}},
        BadInput{"null_cannot_train",
                 "train tiny --device null --as h100 --data {data} --out {dir}/run --steps 1",
                 {"null"}},
        BadInput{"no_vulkan_driver",
                 "plan tiny --device vulkan",
                 {"vulkan"},
                 "VK_DRIVER_FILES=/none VK_ICD_FILENAMES=/none"},
        BadInput{"no_opencl_driver", "plan tiny --device opencl", {"opencl"}, "OCL_ICD_VENDORS=/none"},
        BadInput{"threads_not_a_number",
                 "plan tiny",
                 {"MESHLOOM_THREADS", "from 1 to ", "many"},
                 "MESHLOOM_THREADS=many"},
        BadInput{"threads_too_many",
                 "plan tiny",
                 {"MESHLOOM_THREADS", "from 1 to ", "100000"},
                 "MESHLOOM_THREADS=100000"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Places, BadInputs,
    testing::Values(
        BadInput{"out_is_a_file",
                 "train tiny --device cpu --data {data} --out {dir}/text --steps 1",
                 {"{dir}/text"}},
        BadInput{"out_below_a_file",
                 "train tiny --device cpu --data {data} --out {dir}/text/run --steps 1",
                 {"{dir}/text/run"}},
        BadInput{"out_unwritable",
                 "train tiny --device cpu --data {data} --out /proc/run --steps 1",
                 {"/proc/run"}},
        BadInput{"resume_nothing", kTrain + "--resume", {"{dir}/run", "at least one must be whole"}},
        BadInput{"generate_nothing", "generate --checkpoint {dir}/none --prompt x", {"{dir}/none"}},
        BadInput{"score_stride",
                 "score --checkpoint " MESHLOOM_SOURCE_DIR
                 "/tests/trainer/interop/models/llama --ids --text [1,2,3,4,5] --sequence 3 --stride 3",
                 {"--stride", "must be below the window of 3 tokens; found 3"}},
        BadInput{"generate_empty", "generate --checkpoint {dir}/full --prompt x", {"{dir}/full", "whole"}},
        BadInput{"temperature",
                 "generate --checkpoint {dir}/full --prompt x --temperature -1",
                 {"temperature", "at least 0"}},
        BadInput{"top_p", "generate --checkpoint {dir}/full --prompt x --top-p 0", {"top-p", "(0, 1]"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshloom::tests
