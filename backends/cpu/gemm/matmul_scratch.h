// Scratch of one worker: memory that outlives the work item but holds nothing worth keeping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace meshloom::backends::cpu {

// Aligned pieces of this thread's scratch, in the order of `floats`; uninitialised. Valid until the thread
// asks again.
std::vector<float*> thread_scratch(std::initializer_list<std::int64_t> floats);

}  // namespace meshloom::backends::cpu
