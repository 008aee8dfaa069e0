#include "backends/cpu/gemm/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

namespace meshloom::backends::cpu {
namespace {

OpenBlas load() {
  // Read when the library is loaded: it starts no threads of its own then.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = ::dlerror();
    return {nullptr, nullptr,
            "needs libopenblas.so.0 (package libopenblas0): " + std::string(error == nullptr ? "" : error)};
  }
  const auto sgemm = reinterpret_cast<OpenBlas::Sgemm>(::dlsym(library, "cblas_sgemm"));
  const auto set_threads =
      reinterpret_cast<OpenBlas::SetThreads>(::dlsym(library, "openblas_set_num_threads"));
  if (sgemm == nullptr || set_threads == nullptr)
    return {nullptr, nullptr,
            "needs cblas_sgemm and openblas_set_num_threads, which libopenblas.so.0 has not"};
  return {sgemm, set_threads, ""};
}

}  // namespace

const OpenBlas& openblas() {
  static const OpenBlas loaded = load();
  return loaded;
}

}  // namespace meshloom::backends::cpu
