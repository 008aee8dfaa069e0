// Which calls the library that is loaded before the program (LD_PRELOAD) interferes with.
//     MESHLOOM_FAULTS         faults separated by ';', each "CALL PATH FIRST COUNT CODE": of the calls to CALL with a path that
//                             contains PATH ("-": any), those from the FIRST-th on (counted from 1), COUNT of them, do nothing
//                             and fail: system calls with the errno CODE, drivers' calls by returning CODE. A driver's call
//                             with the CODE 0 does nothing and says that all went well. With the CODE 1 vkQueueSubmit never
//                             signals its end, and with 2 a kernel that clEnqueueNDRangeKernel enqueues never ends.
//     MESHLOOM_FAULTS_LOG     names a file that gets a line per sync and rename
//     MESHLOOM_FAULTS_COUNTS  names a file that gets a line "CALL COUNT" for each of the drivers' calls when the program ends
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>

namespace meshloom::tests {

// The CODE of the fault that this call meets; none where it shall happen. Counts the call.
std::optional<int> fault_of(const char* call, const std::string& path);
bool any_faults();

// The function of this name that would have been called.
template <typename Function>
Function next_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace meshloom::tests
