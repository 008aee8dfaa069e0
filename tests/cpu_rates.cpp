// Test programs, and the programs that they start, take the same rates of the processor everywhere instead of measuring them:
// a third of a second for each, and plans would follow how busy the machine is.
#include <cstdlib>

namespace {

[[maybe_unused]] const int kRatesAreGiven = ::setenv("MESHLOOM_CPU_RATES", "5e10 2e10", /*overwrite=*/0);

}  // namespace
