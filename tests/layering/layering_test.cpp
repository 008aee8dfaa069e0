// The rooms of the design, and that planted violations are told in the right words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/layering/rules.h"

namespace meshloom::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Layering, TheSourcesKeepTheRules) {
  const Sources sources = read_sources(MESHLOOM_SOURCE_DIR);
  ASSERT_GT(sources.size(), 50u);
  EXPECT_THAT(violations(sources), IsEmpty());
}

TEST(Layering, PlantedViolationsAreTold) {
  const auto check = [](const std::string& path, const std::string& text) {
    return violations({{path, text}});
  };
  EXPECT_THAT(
      check("hal/x.h", "#include \"kernels/core/catalog.h\"\n"),
      ElementsAre("hal/x.h:1: hal/ may include nothing outside itself; found \"kernels/core/catalog.h\""));
  EXPECT_THAT(
      check("kernels/x.cpp", "\n#include \"layers/models/trace.h\"\n"),
      ElementsAre("kernels/x.cpp:2: kernels/ may include only hal/; found \"layers/models/trace.h\""));
  EXPECT_THAT(check("backends/cpu/x.cpp", "#include \"trainer/compose/plan.h\"\n"),
              ElementsAre("backends/cpu/x.cpp:1: backends/ may include only hal/, kernels/; found "
                          "\"trainer/compose/plan.h\""));
  EXPECT_THAT(
      check("backends/cpu/x.cpp", "#include \"backends/vulkan/device/device.h\"\n"),
      ElementsAre("backends/cpu/x.cpp:1: a backend may include itself and backends/simt/, never another; "
                  "found \"backends/vulkan/device/device.h\""));
  EXPECT_THAT(
      check("backends/mpi/x.cpp", "#include \"backends/threads/backend.h\"\n"),
      ElementsAre("backends/mpi/x.cpp:1: a backend may include itself and backends/simt/, never another; "
                  "found \"backends/threads/backend.h\""));
  EXPECT_THAT(check("trainer/execute/x.cpp", "#include \"backends/mpi/backend.h\"\n"),
              ElementsAre("trainer/execute/x.cpp:1: trainer/ may include only hal/, kernels/, layers/; found "
                          "\"backends/mpi/backend.h\""));
  EXPECT_THAT(check("layers/x.cpp", "#include \"hal/device.h\"\n"),
              ElementsAre("layers/x.cpp:1: layers/ may include only kernels/; found \"hal/device.h\""));
  EXPECT_THAT(check("layers/x.cpp", "if (on_vulkan) {}\nconst char* b = \"Vulkan\";\n"),
              ElementsAre("layers/x.cpp:2: hardware never appears in a layer; found 'Vulkan'"));
  EXPECT_THAT(check("trainer/x.cpp", "#include \"backends/cpu/device/device.h\"\n"),
              ElementsAre("trainer/x.cpp:1: trainer/ may include only hal/, kernels/, layers/; found "
                          "\"backends/cpu/device/device.h\""));
  EXPECT_THAT(check("trainer/run/x.cpp", "#include \"trainer/serve/http_server.h\"\n"),
              ElementsAre("trainer/run/x.cpp:1: only trainer/cli/ may include trainer/serve/; found "
                          "\"trainer/serve/http_server.h\""));
  EXPECT_THAT(check("trainer/x.cpp", "#include \"tests/kernels/harness.h\"\n"),
              ElementsAre("trainer/x.cpp:1: nothing may include tests/; found \"tests/kernels/harness.h\""));
  EXPECT_THAT(
      check("trainer/cli/app.cpp", "#include \"bench/cli/command.h\"\n"),
      ElementsAre("trainer/cli/app.cpp:1: nothing may include bench/; found \"bench/cli/command.h\""));
}

TEST(Layering, WhatIsAllowedIsNotTold) {
  EXPECT_THAT(
      violations({{"backends/register.cpp", "#include \"trainer/x.h\"\n"},
                  {"trainer/cli/main.cpp", "#include \"bench/cli/command.h\"\n"},
                  {"trainer/cli/serve.cpp", "#include \"trainer/serve/api_server.h\"\n"},
                  {"trainer/serve/api_server.cpp", "#include \"trainer/serve/http_server.h\"\n"},
                  {"layers/a.cpp", "#include \"kernels/matmul/matmul.h\"\n#include \"hal/error.h\"\n"},
                  {"backends/vulkan/a.cpp", "#include \"backends/simt/dialect/loader.h\"\n"}}),
      IsEmpty());
}

}  // namespace
}  // namespace meshloom::tests
