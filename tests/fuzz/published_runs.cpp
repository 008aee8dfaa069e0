// Tables of published runs, as CSV.
#include "bench/plans/runs.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace meshloom;
  tests::refusal_or_not([&] {
    for (const bench::PublishedRun& run :
         bench::parse_published_runs({reinterpret_cast<const char*>(data), size}, "runs.csv")) {
      if (run.copies() * run.tensor * run.pipeline * run.context != run.chips) __builtin_trap();
      if (run.micro_batch < 1 || run.accumulation < 1 || run.heads % run.kv_heads != 0) __builtin_trap();
    }
  });
  return 0;
}
