// An Arc that is not there: answers what Mesa's ANV asks of libdrm and of the kernel's driver xe while it opens a device and
// compiles, from a table. Nothing can run on the device: its memory is a sparse file, and what is submitted is dropped.
//   cc -shared -fPIC -O1 -I INCLUDE -I INCLUDE/libdrm scripts/intel-shim.c -o intel-shim.so
//   INTEL_SHIM_FAMILY=dg2 LD_PRELOAD=intel-shim.so build/meshloom kernels --inspect ... --device vulkan:0
// scripts/inspect-gpu does so, with the headers of Debian's libdrm-dev and linux-libc-dev.
#include <drm/xe_drm.h>
#include <errno.h>

#include "drm-shim.h"

struct chip {
  const char* name;
  struct card card;
  uint16_t revision, ip_major, ip_minor;  // of the version, 0 where the device's id tells it
  uint32_t slices, engines, threads;      // slices of four Xe cores; vector engines of one; threads of an engine
  uint16_t engine_mask;                   // which kind of mask tells the engines
  uint32_t memory_gb;
};
// Source: Linux, include/drm/intel/pciids.h and drivers/gpu/drm/xe/xe_pci.c; Intel's specifications of the A770 and the B580.
static const struct chip chips[] = {
    {"dg2", {0x8086, 0x56a0, "xe", 1, 1}, 8, 0, 0, 8, 16, 8, DRM_XE_TOPO_EU_PER_DSS, 16},
    {"bmg", {0x8086, 0xe20b, "xe", 1, 1}, 0, 20, 1, 5, 8, 8, DRM_XE_TOPO_SIMD16_EU_PER_DSS, 12},
};
static const struct chip* chip(void) {
  const char* wanted = getenv("INTEL_SHIM_FAMILY");
  for (size_t i = 0; wanted && i < sizeof chips / sizeof *chips; ++i)
    if (!strcmp(wanted, chips[i].name)) return &chips[i];
  return NULL;
}
static const struct card* card(void) { return chip() ? &chip()->card : NULL; }

// Queries are made twice: for the size, and for the data.
static int reply(struct drm_xe_device_query* query, const void* from, size_t bytes) {
  if (query->data) memcpy((void*)(uintptr_t)query->data, from, query->size < bytes ? query->size : bytes);
  query->size = (uint32_t)bytes;
  return 0;
}
static int answer_engines(struct drm_xe_device_query* query) {
  struct {
    struct drm_xe_query_engines head;
    struct drm_xe_engine of[3];
  } engines = {{.num_engines = 3},
               {{{DRM_XE_ENGINE_CLASS_RENDER, 0, 0, 0}, {0}},
                {{DRM_XE_ENGINE_CLASS_COPY, 0, 0, 0}, {0}},
                {{DRM_XE_ENGINE_CLASS_COMPUTE, 0, 0, 0}, {0}}}};
  return reply(query, &engines, sizeof engines);
}
static int answer_regions(struct drm_xe_device_query* query) {
  const uint64_t vram = (uint64_t)chip()->memory_gb << 30, ram = (uint64_t)16 << 30;
  struct {
    struct drm_xe_query_mem_regions head;
    struct drm_xe_mem_region of[2];
  } regions = {{.num_mem_regions = 2},
               {{.mem_class = DRM_XE_MEM_REGION_CLASS_SYSMEM, .min_page_size = 4096, .total_size = ram},
                {.mem_class = DRM_XE_MEM_REGION_CLASS_VRAM,
                 .instance = 1,
                 .min_page_size = 65536,
                 .total_size = vram,
                 .cpu_visible_size = vram}}};
  return reply(query, &regions, sizeof regions);
}
static int answer_config(struct drm_xe_device_query* query) {
  struct {
    struct drm_xe_query_config head;
    uint64_t of[5];
  } config = {{.num_params = 5},
              {[DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID] = (uint64_t)chip()->revision << 16 | chip()->card.device,
               [DRM_XE_QUERY_CONFIG_FLAGS] = DRM_XE_QUERY_CONFIG_FLAG_HAS_VRAM,
               [DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT] = 65536,
               [DRM_XE_QUERY_CONFIG_VA_BITS] = 48,
               [DRM_XE_QUERY_CONFIG_MAX_EXEC_QUEUE_PRIORITY] = 1}};
  return reply(query, &config, sizeof config);
}
static int answer_gts(struct drm_xe_device_query* query) {
  struct {
    struct drm_xe_query_gt_list head;
    struct drm_xe_gt of[1];
  } gts = {{.num_gt = 1},
           {{.type = DRM_XE_QUERY_GT_TYPE_MAIN,
             .reference_clock = 19200000,
             .near_mem_regions = 2,
             .far_mem_regions = 1,
             .ip_ver_major = chip()->ip_major,
             .ip_ver_minor = chip()->ip_minor}}};
  return reply(query, &gts, sizeof gts);
}
// Keys, lengths in words, and values; of the many keys those that tell how many threads a workgroup may have.
// Source: Mesa, src/intel/dev/intel_hwconfig_types.h.
static int answer_hwconfig(struct drm_xe_device_query* query) {
  enum { engines_per_core = 3, threads_per_engine = 15 };
  const uint32_t table[] = {engines_per_core, 1, chip()->engines, threads_per_engine, 1, chip()->threads};
  return reply(query, table, sizeof table);
}
static int answer_topology(struct drm_xe_device_query* query) {
  struct mask {
    struct drm_xe_query_topology_mask head;
    uint64_t bits;
  } __attribute__((packed));
  const uint32_t bytes = sizeof(uint64_t);
  const uint64_t cores = ((uint64_t)1 << 4 * chip()->slices) - 1, engines = ((uint64_t)1 << chip()->engines) - 1;
  const struct mask masks[] = {{{.type = DRM_XE_TOPO_DSS_GEOMETRY, .num_bytes = bytes}, cores},
                               {{.type = DRM_XE_TOPO_DSS_COMPUTE, .num_bytes = bytes}, cores},
                               {{.type = chip()->engine_mask, .num_bytes = bytes}, engines}};
  return reply(query, masks, sizeof masks);
}
static int answer_query(struct drm_xe_device_query* query) {
  switch (query->query) {
    case DRM_XE_DEVICE_QUERY_ENGINES: return answer_engines(query);
    case DRM_XE_DEVICE_QUERY_MEM_REGIONS: return answer_regions(query);
    case DRM_XE_DEVICE_QUERY_CONFIG: return answer_config(query);
    case DRM_XE_DEVICE_QUERY_GT_LIST: return answer_gts(query);
    case DRM_XE_DEVICE_QUERY_HWCONFIG: return answer_hwconfig(query);
    case DRM_XE_DEVICE_QUERY_GT_TOPOLOGY: return answer_topology(query);
    default: errno = EINVAL; return -1;
  }
}

static int answer(unsigned long number, void* data) {
  switch (number) {
    case DRM_XE_DEVICE_QUERY: return answer_query(data);
    case DRM_XE_GEM_CREATE: {
      struct drm_xe_gem_create* create = data;
      create->handle = new_handle(create->size);
      return 0;
    }
    case DRM_XE_GEM_MMAP_OFFSET: {
      struct drm_xe_gem_mmap_offset* map = data;
      map->offset = offset_of(map->handle);
      return 0;
    }
    case DRM_XE_VM_CREATE: ((struct drm_xe_vm_create*)data)->vm_id = 1; return 0;
    case DRM_XE_EXEC_QUEUE_CREATE: ((struct drm_xe_exec_queue_create*)data)->exec_queue_id = 1; return 0;
    case DRM_XE_EXEC_QUEUE_GET_PROPERTY: ((struct drm_xe_exec_queue_get_property*)data)->value = 0; return 0;
    default: return 0;
  }
}
