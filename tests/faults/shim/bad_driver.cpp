// A driver of Vulkan and OpenCL that breaks when it is loaded, as the variable MESHLOOM_BAD_DRIVER says: crash, hang, or exit.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace {

void* broken() {
  const char* how = std::getenv("MESHLOOM_BAD_DRIVER");
  const std::string_view text = how ? how : "";
  if (text == "hang")
    for (;;) ::pause();
  if (text == "exit") ::_exit(7);
  if (text == "crash") std::raise(SIGSEGV);
  return nullptr;
}

}  // namespace

// What the loaders of Vulkan and of OpenCL ask a driver for first.
extern "C" {
int vk_icdNegotiateLoaderICDInterfaceVersion(unsigned*) {
  broken();
  return -9;  // incompatible driver
}
void* vk_icdGetInstanceProcAddr(void*, const char*) { return broken(); }
void* clGetExtensionFunctionAddress(const char*) { return broken(); }
int clIcdGetPlatformIDsKHR(unsigned, void*, unsigned*) {
  broken();
  return -1001;  // no platform
}
}
