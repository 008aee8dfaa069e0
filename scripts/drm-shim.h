// What the cards that are made up by amdgpu-shim.c and intel-shim.c share: the answers of libdrm about a card, its file, which is
// its memory too, and the ioctls on the way to the shim. Each of them includes this once, and defines card() and answer().
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xf86drm.h>

struct card {
  uint16_t vendor, device;  // of PCI
  const char* driver;       // the name of the kernel's
  int major, minor;         // its version
};
static const struct card* card(void);                 // NULL = the environment names none
static int answer(unsigned long number, void* data);  // an ioctl of DRM, by its number; 0, or -1 with errno

// --- the device's file ---
static char path[64];
static void open_file(void) {
  if (path[0]) return;
  const int file = memfd_create("drm-shim", 0);
  if (file < 0 || ftruncate(file, (off_t)1 << 40)) perror("drm-shim");
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
}
enum { handles = 1 << 16 };
static uint64_t sizes[handles], offsets[handles], next_offset = 1 << 16;
static uint32_t next_handle;
static uint32_t new_handle(uint64_t bytes) {
  next_handle = next_handle % (handles - 1) + 1;
  sizes[next_handle] = bytes, offsets[next_handle] = 0;
  return next_handle;
}
// Where a buffer lies in the file.
static uint64_t offset_of(uint32_t handle) {
  handle %= handles;
  if (!offsets[handle]) offsets[handle] = next_offset, next_offset += (sizes[handle] + 0xffff) & ~(uint64_t)0xffff;
  return offsets[handle];
}

// --- libdrm ---
static drmDevicePtr new_device(void) {
  open_file();
  drmDevicePtr device = calloc(1, sizeof *device);
  device->nodes = calloc(DRM_NODE_MAX, sizeof *device->nodes);
  for (int i = 0; i < DRM_NODE_MAX; ++i) device->nodes[i] = path;
  device->available_nodes = 1 << DRM_NODE_RENDER;
  device->bustype = DRM_BUS_PCI;
  device->businfo.pci = calloc(1, sizeof *device->businfo.pci);
  device->businfo.pci->bus = 3;
  device->deviceinfo.pci = calloc(1, sizeof *device->deviceinfo.pci);
  device->deviceinfo.pci->vendor_id = card()->vendor;
  device->deviceinfo.pci->device_id = card()->device;
  return device;
}
int drmGetDevices2(uint32_t flags, drmDevicePtr devices[], int most) {
  (void)flags;
  if (!card()) return 0;
  if (devices && most > 0) devices[0] = new_device();
  return 1;
}
int drmGetDevice2(int file, uint32_t flags, drmDevicePtr* device) {
  (void)file, (void)flags;
  *device = new_device();
  return 0;
}
// Few are made in a process: they stay.
void drmFreeDevice(drmDevicePtr* device) { *device = NULL; }
void drmFreeDevices(drmDevicePtr devices[], int count) { (void)devices, (void)count; }
drmVersionPtr drmGetVersion(int file) {
  (void)file;
  drmVersionPtr version = calloc(1, sizeof *version);
  version->version_major = card()->major;
  version->version_minor = card()->minor;
  version->name = strdup(card()->driver);
  version->name_len = (int)strlen(version->name);
  version->date = strdup("");
  version->desc = strdup("");
  return version;
}
void drmFreeVersion(drmVersionPtr version) { free(version->name), free(version->date), free(version->desc), free(version); }
int drmGetCap(int file, uint64_t capability, uint64_t* value) {
  (void)file, (void)capability;
  *value = 1;
  return 0;
}
int drmIoctl(int file, unsigned long request, void* data) {
  (void)file;
  const unsigned long number = request & 0xff;
  if (number == (DRM_IOCTL_SYNCOBJ_CREATE & 0xff)) {
    ((struct drm_syncobj_create*)data)->handle = new_handle(0);
    return 0;
  }
  return number >= DRM_COMMAND_BASE && number < DRM_COMMAND_END ? answer(number - DRM_COMMAND_BASE, data) : 0;
}
// Mesa makes some of these calls itself.
int ioctl(int file, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* data = va_arg(list, void*);
  va_end(list);
  if ((request >> 8 & 0xff) == DRM_IOCTL_BASE) return drmIoctl(file, request, data);
  static int (*next)(int, unsigned long, ...);
  if (!next) next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
  return next(file, request, data);
}
