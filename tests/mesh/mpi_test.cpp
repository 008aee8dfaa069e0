// Ranks that are processes, started by mpirun; and what is said where they cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "backends/mpi/backend.h"
#include "tests/mesh/shell.h"
#include "tests/message_of.h"

namespace meshloom::tests {
namespace {

namespace mpi = backends::mpi;
using testing::AllOf;
using testing::HasSubstr;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
    if (run_in_shell("command -v mpirun").code != 0) GTEST_SKIP() << "there is no mpirun";
  }
  static ShellResult ranks(const std::string& what) {
    return run_in_shell(
        "timeout ${MESHLOOM_TEST_SECONDS:-100} mpirun --allow-run-as-root --oversubscribe --bind-to none -n "
        "3 " MESHLOOM_MESH_RANKS " " +
        what);
  }
};

TEST_F(Mpi, RandomMovesEqualTheReference) {
  const ShellResult result = ranks("random");
  EXPECT_EQ(result.code, 0) << result.said;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(result.said, HasSubstr("rank " + std::to_string(rank) + " is right"));
}

TEST_F(Mpi, LongMovesArrive) {
  const ShellResult result = ranks("long");
  EXPECT_EQ(result.code, 0) << result.said;
  EXPECT_THAT(result.said, HasSubstr("rank 1 is right"));
}

TEST_F(Mpi, AnAbortEndsAllRanksWithItsReason) {
  const ShellResult result = ranks("abort");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.said, testing::ContainsRegex("meshloom: rank 1 \\([^)]*\\): the loss is NaN"));
}

TEST_F(Mpi, AnExceptionOfARankEndsTheOthers) {
  const ShellResult result = ranks("throw");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.said, HasSubstr("disk: must have room; found none"));
}

TEST_F(Mpi, AKilledRankEndsTheOthers) {
  const ShellResult result = ranks("kill");
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.code, 124) << "timed out";
}

TEST_F(Mpi, ASilentRankIsNamedWithItsMove) {
  const ShellResult result = ranks("silent");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.said,
              testing::ContainsRegex("all_gather of decoder/layer0: rank 1 \\([^)]*\\) must send move"));
}

TEST_F(Mpi, DifferencesAreTold) {
  const ShellResult result = ranks("differ");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.said, HasSubstr("both ranks must mean the same op"));
}

TEST_F(Mpi, AMessageOfAnotherSizeIsAnError) {
  const ShellResult result = ranks("size");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.said, HasSubstr("must have the 5 bytes that are expected; found more"));
}

mpi::Environment environment(std::map<std::string, std::string> values) {
  return [values](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

TEST(Launcher, IsFoundInTheEnvironment) {
  EXPECT_EQ(mpi::launcher(environment({})), std::nullopt);
  EXPECT_EQ(mpi::launcher(environment({{"OMPI_COMM_WORLD_SIZE", "4"}})), "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(mpi::launcher(environment({{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}})),
            "PMIX_RANK");
  // A batch script, and a step of one task, are no ranks.
  EXPECT_EQ(mpi::launcher(environment({{"SLURM_NTASKS", "4"}})), std::nullopt);
  EXPECT_EQ(mpi::launcher(
                environment({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})),
            std::nullopt);
}

TEST(Launcher, LoneCopiesAreRefused) {
  const auto error = [](std::map<std::string, std::string> values) {
    return message_of([&] { mpi::launcher(environment(values)); });
  };
  EXPECT_THAT(error({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}),
              AllOf(HasSubstr("start them with srun --mpi=pmix"),
                    HasSubstr("found lone copies under srun: SLURM_NTASKS=2 and no PMIX_RANK")));
  EXPECT_THAT(error({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}),
              HasSubstr("found another MPI's: PMI_SIZE=2 and no PMIX_RANK"));
}

TEST(Launcher, NothingIsConnectedWithoutOne) {
  const std::string error = message_of([] { mpi::connect(environment({})); });
  if (mpi::is_built())
    EXPECT_EQ(error,
              "ranks: a launcher, mpirun or srun --mpi=pmix, must have started the process; found none");
  else
    EXPECT_THAT(error, HasSubstr("must be built with (MESHLOOM_MPI); found a program without MPI"));
}

}  // namespace
}  // namespace meshloom::tests
