// How work items are handed out to threads.
#pragma once

namespace meshloom::backends::cpu {

enum class Schedule {
  // Runs of consecutive items that get shorter, so that no thread waits long for another: OpenMP's `guided`.
  guided,
  // One run per thread, all of equal length: OpenMP's `static`. For items that take equal time and together read memory as one stream, which
  // every new run would interrupt.
  even,
};

}  // namespace meshloom::backends::cpu
