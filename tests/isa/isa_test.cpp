// Holds what the kernels compile to to bars.txt, by the drivers that compile here for GPUs that are not. A test of code, not of
// time: it is the same on any machine with the same driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/isa/bars.h"
#include "tests/trainer/run/binary.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<BarRow>& bars() {
  static const std::vector<BarRow> rows = parse_bars(read_text(MESHLOOM_SOURCE_DIR "/tests/isa/bars.txt"));
  return rows;
}

// How kernels are compiled for a family by a driver: what comes before the program, and its device.
struct Way {
  std::string environment, device;
  std::string missing;  // what is not here; "" = all is
};

// RADV as the system has it, or RADV and ANV as scripts/inspect-gpu unpacked them.
Way by_mesa(const std::string& driver, const std::string& family) {
  const std::string unpacked = MESHLOOM_SOURCE_DIR "/build/drivers/";
  std::string file, more, start, variable = "RADV_FORCE_FAMILY";
  if (family == "dg2" || family == "bmg")
    file = unpacked + "anv/intel.json", start = " " + unpacked + "anv/run", variable = "INTEL_SHIM_FAMILY",
    more = " INTEL_XE_IGNORE_EXPERIMENTAL_WARNING=true";
  else if (driver.starts_with("Mesa 22."))
    file = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
  else if (driver.starts_with("Mesa 25."))
    file = unpacked + "radv/radeon.json",
    more = " LD_LIBRARY_PATH=" + unpacked + "radv/root/usr/lib/x86_64-linux-gnu";
  else
    file = unpacked + "radv-26/radeon.json", start = " " + unpacked + "radv-26/run",
    variable = "AMDGPU_SHIM_FAMILY";
  if (!std::filesystem::exists(file))
    return {"", "",
            file.starts_with(unpacked) ? "scripts/inspect-gpu unpacks it"
                                       : "mesa-vulkan-drivers is not installed"};
  return {"export " + variable + "=" + family + " VK_DRIVER_FILES=" + file + " VK_ICD_FILENAMES=" + file +
              " MESA_SHADER_CACHE_DISABLE=true" + more + ";" + start,
          "vulkan", ""};
}

// The compilers of OpenCL as scripts/inspect-gpu unpacked them.
Way by_offline_compiler(const std::string& driver, const std::string& family) {
  const std::string name = driver.starts_with("ptxas")          ? "ptxas"
                           : driver.starts_with("ocloc 22.43.") ? "ocloc"
                                                                : "ocloc-sid";
  const std::string unpacked = MESHLOOM_SOURCE_DIR "/build/drivers/" + name;
  if (!std::filesystem::exists(unpacked + "/done")) return {"", "", "scripts/inspect-gpu unpacks it"};
  return {"export PATH=" + unpacked + "/bin:$PATH MESHLOOM_LIBCLC=" + unpacked + "/root/usr/lib/clc;",
          "opencl:" + family, ""};
}

std::map<std::string, double> measures(const nlohmann::json& pipeline) {
  std::map<std::string, double> found;
  for (const auto& [name, field] :
       {std::pair{"spilled", "spilled"}, {"scratch", "scratch_bytes"}, {"waves", "waves"}})
    if (pipeline[field].is_number()) found[name] = pipeline[field];
  const nlohmann::json *main = nullptr, *product = nullptr;
  for (const auto& loop : pipeline["loops"]) {
    if (loop["main"]) main = &loop;
    if (loop["product"]) product = &loop;
  }
  if (!main || !product) return found;
  // The main loop says nothing where a loop inside turns unknown times.
  found["multiply"] = (*((*main)["guessed"] ? product : main))["multiply_share"];
  if ((*main)["exposed_waits"].is_number()) found["exposed"] = (*main)["exposed_waits"];
  const auto narrowest = [](const nlohmann::json& loads) {
    double bytes = 16;
    for (const auto& [width, count] : loads.items()) bytes = std::min(bytes, std::stod(width));
    return bytes;
  };
  found["device_load"] = narrowest((*main)["device_loads"]);
  found["wide_loads"] = (*main)["device_loads"].value("16", 0.0);
  found["local_load"] = narrowest((*main)["local_loads"]);
  return found;
}

class Isa : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(Isa, KernelsCompileToWhatTheyMust) {
  const auto& [family, driver] = GetParam();
  const Way way = driver.starts_with("Mesa") ? by_mesa(driver, family) : by_offline_compiler(driver, family);
  if (!way.missing.empty()) GTEST_SKIP() << driver << " is not here: " << way.missing;
  std::map<std::string, std::set<std::string>> calls;  // by the variant that is named
  for (const BarRow& row : bars())
    if (row.family == family && row.driver == driver) calls[row.variant].insert(row.call);
  std::map<std::string, nlohmann::json> inspected;
  for (const auto& [variant, typed] : calls) {
    std::string arguments = "kernels --json --device " + way.device;
    if (!variant.empty()) arguments += " --variant " + variant;
    for (const std::string& call : typed) arguments += " --inspect '" + call + "'";
    const Outcome outcome = meshloom(arguments, way.environment);
    if (outcome.err.find("needs a device of this backend") != std::string::npos ||
        outcome.err.find("must be one of those built") != std::string::npos)
      GTEST_SKIP() << driver << " does not stand for " << family << " here: " << outcome.err;
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json& rows = inspected[variant] = nlohmann::json::parse(outcome.out);
    ASSERT_EQ(rows.size(), typed.size());
    if (const std::string found = rows[0]["driver"]; found.find(driver) == std::string::npos)
      GTEST_SKIP() << "the bars are those of " << driver << "; found " << found
                   << ", which asks for new ones";
  }
  for (const BarRow& row : bars()) {
    if (row.family != family || row.driver != driver) continue;
    Measured measured;
    for (const auto& call : inspected[row.variant])
      if (call["typed"] == row.call)
        for (const auto& pipeline : call["pipelines"])
          if (pipeline["kernel"] == row.kernel) {
            measured.push_back(measures(pipeline));
            measured.back()["kernels"] = static_cast<double>(call["pipelines"].size());
          }
    EXPECT_THAT(broken_bars(row, measured), IsEmpty());
  }
}

// What shares launches in steps of small models (trainer/execute/horizontal_fusion.h): picking its arguments costs no registers that
// are not there.
TEST(FusedKernels, KeepTheirRegisters) {
  const Way way = by_offline_compiler("ptxas 13", "sm_90");
  if (!way.missing.empty()) GTEST_SKIP() << "ptxas is not here: " << way.missing;
  const std::string calls =
      "kernels --json --device opencl:sm_90 --inspect 'matmul bf16 2048x576x576:tb' "
      "--inspect 'matmul bf16 2048x1536x576:tb' --inspect 'matmul bf16 2048x576x1536' "
      "--inspect 'matmul bf16 576x576x2048:ta' --inspect 'rope bf16 4x512x9x64' --inspect 'cast f32(576, "
      "576) {dtype=\"bf16\"}' "
      "--inspect 'square_sum f32(576, 576)' --inspect 'rms_norm bf16 2048x576'";
  const Outcome alone = meshloom(calls, way.environment);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const nlohmann::json one = nlohmann::json::parse(alone.out);
  for (const char* count : {"4", "8"}) {
    const Outcome outcome = meshloom(calls + " --fused " + count, way.environment);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json several = nlohmann::json::parse(outcome.out);
    ASSERT_EQ(several.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      for (std::size_t p = 0; p < one[i]["pipelines"].size(); ++p) {
        const auto &fused = several[i]["pipelines"][p], &single = one[i]["pipelines"][p];
        const std::string what =
            one[i]["typed"].get<std::string>() + ", " + fused["kernel"].get<std::string>();
        EXPECT_EQ(fused["spilled"], 0) << what;
        EXPECT_LE(fused["registers"].get<int>(), single["registers"].get<int>() + 24) << what;
        EXPECT_GE(fused["waves"].get<double>(), 0.6 * single["waves"].get<double>()) << what;
      }
  }
}

std::vector<std::pair<std::string, std::string>> places() {
  std::set<std::pair<std::string, std::string>> all;
  for (const BarRow& row : bars()) all.emplace(row.family, row.driver);
  return {all.begin(), all.end()};
}
INSTANTIATE_TEST_SUITE_P(Families, Isa, testing::ValuesIn(places()), [](const auto& info) {
  std::string name = info.param.first + "_" + info.param.second;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// The negative controls of the check above.
TEST(Bars, AFailureIsFoundAndAKnownOneThatIsMendedToo) {
  const BarRow row =
      parse_bars("navi21 | Mesa | matmul 1x1x1 | k | spilled<=0 multiply>=0.85 | multiply").at(0);
  EXPECT_THAT(broken_bars(row, {{{"spilled", 0}, {"multiply", 0.5}}}), IsEmpty());
  EXPECT_THAT(broken_bars(row, {{{"spilled", 3}, {"multiply", 0.5}}}),
              ElementsAre(HasSubstr("spilled must be <= 0; found 3")));
  EXPECT_THAT(broken_bars(row, {{{"spilled", 0}, {"multiply", 0.5}}, {{"spilled", 2}, {"multiply", 0.9}}}),
              ElementsAre(HasSubstr("spilled must be <= 0; found 0, 2")));
  EXPECT_THAT(broken_bars(row, {{{"spilled", 0}, {"multiply", 0.9}}}),
              ElementsAre(HasSubstr("take it off the list")));
  EXPECT_THAT(broken_bars(row, {{{"multiply", 0.5}}}), ElementsAre(HasSubstr("found nothing")));
  EXPECT_THAT(broken_bars(row, {}), ElementsAre(HasSubstr("does not dispatch it any more")));
}

TEST(Bars, ACallMayNameItsVariant) {
  const std::vector<BarRow> rows =
      parse_bars("sm_90 | ptxas | matmul 1x1x1 by one | k | |\nsm_90 | ptxas | matmul 1x1x1 | k | |");
  EXPECT_EQ(rows.at(0).call, "matmul 1x1x1");
  EXPECT_EQ(rows.at(0).variant, "one");
  EXPECT_EQ(rows.at(1).variant, "");
}

TEST(Bars, AMalformedLineIsNamed) {
  const auto error = [](const char* text) -> std::string {
    try {
      parse_bars(text);
    } catch (const std::runtime_error& refused) {
      return refused.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("# nothing\nnavi21 | Mesa | call"), HasSubstr("line 2: must have six cells"));
  EXPECT_THAT(error("navi21 | Mesa | call | k | spilled<0 |"), HasSubstr("a bar must read"));
  EXPECT_THAT(error("navi21 | Mesa | call | k | spilled<=0 | multiply"),
              HasSubstr("what is known must have a bar"));
}

}  // namespace
}  // namespace meshloom::tests
