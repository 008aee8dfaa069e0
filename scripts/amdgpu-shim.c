// A Radeon that is not there: answers what Mesa's RADV asks of libdrm, libdrm_amdgpu and the kernel while it opens a device and
// compiles, from a table, as Mesa's own drm-shim does, which distributions do not package. RADV has needed it since Mesa 26, which
// refuses to stand for hardware by RADV_FORCE_FAMILY. Nothing can run on the device: its memory is a sparse file, and what is submitted is dropped.
//   cc -shared -fPIC -O1 -I INCLUDE/libdrm scripts/amdgpu-shim.c -o amdgpu-shim.so
//   AMDGPU_SHIM_FAMILY=gfx1201 LD_PRELOAD=amdgpu-shim.so build/meshloom kernels --inspect ... --device vulkan:0
// scripts/inspect-gpu does so, with libdrm's headers of Debian's libdrm-dev.
#include "drm-shim.h"

#include <amdgpu.h>
#include <amdgpu_drm.h>

struct chip {
  const char* name;
  uint32_t device, family, revision, major, ip_version;
  uint32_t engines, arrays, units, address_config, cache_mb, mall_mb;  // units: a mask of those of an array
};
// Source: Linux, drivers/gpu/drm/amd/amdgpu/soc24.c (revisions), and Mesa, src/amd/common/amd_family.c and ac_gpu_info.c.
static const struct chip chips[] = {
    {"gfx1200", 0x7590, AMDGPU_FAMILY_GC_12_0_0, 0x40, 12, 0x0c0000, 2, 2, 0xff, 0x443, 4, 32},
    {"gfx1201", 0x7550, AMDGPU_FAMILY_GC_12_0_0, 0x50, 12, 0x0c0001, 4, 2, 0xff, 0x444, 8, 64},
};
static const struct chip* chip(void) {
  const char* wanted = getenv("AMDGPU_SHIM_FAMILY");
  for (size_t i = 0; wanted && i < sizeof chips / sizeof *chips; ++i)
    if (!strcmp(wanted, chips[i].name)) return &chips[i];
  return NULL;
}

static const struct card* card(void) {
  static struct card own = {0x1002, 0, "amdgpu", 3, 64};
  if (!chip()) return NULL;
  own.device = (uint16_t)chip()->device;
  return &own;
}

// --- the kernel ---
static void reply(const struct drm_amdgpu_info* asked, const void* from, size_t bytes) {
  void* to = (void*)(uintptr_t)asked->return_pointer;
  memset(to, 0, asked->return_size);
  memcpy(to, from, bytes < asked->return_size ? bytes : asked->return_size);
}
static struct drm_amdgpu_info_device device_info(void) {
  const struct chip* c = chip();
  struct drm_amdgpu_info_device d = {0};
  d.device_id = c->device, d.family = c->family, d.external_rev = c->revision;
  d.num_shader_engines = c->engines, d.num_shader_arrays_per_engine = c->arrays;
  d.num_cu_per_sh = (uint32_t)__builtin_popcount(c->units);
  for (uint32_t i = 0; i < c->engines; ++i)
    for (uint32_t j = 0; j < c->arrays; ++j) d.cu_bitmap[i][j] = d.cu_ao_bitmap[i][j] = c->units;
  d.cu_active_number = c->engines * c->arrays * d.num_cu_per_sh;
  d.num_rb_pipes = c->engines * c->arrays, d.enabled_rb_pipes_mask = (1u << d.num_rb_pipes) - 1;
  d.gpu_counter_freq = 100000, d.max_engine_clock = 2500000, d.max_memory_clock = 1250000;
  d.vram_type = AMDGPU_VRAM_TYPE_GDDR6, d.vram_bit_width = 256;
  d.virtual_address_offset = 0x200000, d.virtual_address_max = 0x800000000000, d.virtual_address_alignment = 4096;
  d.high_va_offset = 0xffff800000000000, d.high_va_max = 0xffffffffffe00000;
  d.pte_fragment_size = 2 << 20, d.gart_page_size = 4096;
  d.wave_front_size = 32, d.num_shader_visible_vgprs = 1536, d.max_gs_waves_per_vgt = 32;
  d.num_hw_gfx_contexts = 8, d.gs_vgt_table_depth = 32, d.gs_prim_buffer_depth = 1792, d.gc_double_offchip_lds_buf = 1;
  d.num_tcc_blocks = 16, d.tcp_cache_size = 32, d.num_sqc_per_wgp = 1, d.sqc_data_cache_size = 16, d.sqc_inst_cache_size = 32;
  d.gl1c_cache_size = 256, d.gl2c_cache_size = c->cache_mb << 10, d.mall_size = (uint64_t)c->mall_mb << 20;
  return d;
}
static int answer_info(const struct drm_amdgpu_info* asked) {
  const uint32_t type = asked->query_hw_ip.type, there = type <= AMDGPU_HW_IP_DMA;
  if (asked->query == AMDGPU_INFO_ACCEL_WORKING) {
    const uint32_t yes = 1;
    reply(asked, &yes, sizeof yes);
  } else if (asked->query == AMDGPU_INFO_DEV_INFO) {
    const struct drm_amdgpu_info_device device = device_info();
    reply(asked, &device, sizeof device);
  } else if (asked->query == AMDGPU_INFO_HW_IP_COUNT) {
    reply(asked, &there, sizeof there);
  } else if (asked->query == AMDGPU_INFO_HW_IP_INFO) {
    const struct drm_amdgpu_info_hw_ip ip = {.hw_ip_version_major = chip()->major,
                                             .ib_start_alignment = 32,
                                             .ib_size_alignment = 32,
                                             .available_rings = 1,
                                             .ip_discovery_version = chip()->ip_version};
    reply(asked, &ip, there ? sizeof ip : 0);
  } else if (asked->query == AMDGPU_INFO_FW_VERSION) {
    const struct drm_amdgpu_info_firmware firmware = {.ver = 3000, .feature = 60};
    reply(asked, &firmware, sizeof firmware);
  } else if (asked->query == AMDGPU_INFO_MEMORY) {
    struct drm_amdgpu_memory_info memory = {0};
    memory.vram.total_heap_size = memory.vram.usable_heap_size = memory.vram.max_allocation = (uint64_t)16 << 30;
    memory.cpu_accessible_vram = memory.gtt = memory.vram;
    reply(asked, &memory, sizeof memory);
  } else if (asked->query == AMDGPU_INFO_READ_MMR_REG) {
    for (uint32_t i = 0; i < asked->read_mmr_reg.count; ++i)
      ((uint32_t*)(uintptr_t)asked->return_pointer)[i] = chip()->address_config;
  } else {
    reply(asked, NULL, 0);
  }
  return 0;
}
static int answer(unsigned long number, void* data) {
  if (number == DRM_AMDGPU_INFO) return answer_info(data);
  if (number == DRM_AMDGPU_GEM_CREATE) {
    union drm_amdgpu_gem_create* create = data;
    const uint64_t bytes = create->in.bo_size;
    memset(create, 0, sizeof *create);
    create->out.handle = new_handle(bytes);
  } else if (number == DRM_AMDGPU_GEM_MMAP) {
    union drm_amdgpu_gem_mmap* map = data;
    map->out.addr_ptr = offset_of(map->in.handle);
  } else if (number == DRM_AMDGPU_CTX) {
    union drm_amdgpu_ctx* context = data;
    memset(context, 0, sizeof *context);
    context->out.alloc.ctx_id = 1;
  }
  return 0;
}
int drmCommandWriteRead(int file, unsigned long number, void* data, unsigned long size) {
  (void)file, (void)size;
  return answer(number, data);
}
int drmCommandWrite(int file, unsigned long number, void* data, unsigned long size) {
  return drmCommandWriteRead(file, number, data, size);
}
// --- libdrm_amdgpu ---
int amdgpu_device_initialize2(int file, bool shared, uint32_t* major, uint32_t* minor, amdgpu_device_handle* device) {
  (void)shared;
  int* own = malloc(sizeof *own);
  *own = dup(file), *major = 3, *minor = 64, *device = (amdgpu_device_handle)own;
  return 0;
}
int amdgpu_device_initialize(int file, uint32_t* major, uint32_t* minor, amdgpu_device_handle* device) {
  return amdgpu_device_initialize2(file, false, major, minor, device);
}
int amdgpu_device_deinitialize(amdgpu_device_handle device) {
  close(*(int*)device), free(device);
  return 0;
}
int amdgpu_device_get_fd(amdgpu_device_handle device) { return *(int*)device; }
const char* amdgpu_get_marketing_name(amdgpu_device_handle device) {
  (void)device;
  return "Null hardware";
}
int amdgpu_query_sw_info(amdgpu_device_handle device, enum amdgpu_sw_info what, void* value) {
  (void)device, (void)what;
  *(uint32_t*)value = 0xffff8000;  // the upper half of the addresses that shaders know by their lower half
  return 0;
}
int amdgpu_va_range_alloc(amdgpu_device_handle device, enum amdgpu_gpu_va_range kind, uint64_t size, uint64_t alignment,
                          uint64_t required, uint64_t* address, amdgpu_va_handle* handle, uint64_t flags) {
  (void)device, (void)kind;
  static uint64_t next_address = (uint64_t)1 << 33, next_low = 0xffff800000100000;
  uint64_t* next = flags & AMDGPU_VA_RANGE_32_BIT ? &next_low : &next_address;
  if (alignment < 4096) alignment = 4096;
  *next = (*next + alignment - 1) / alignment * alignment;
  *address = required ? required : *next;
  if (!required) *next += (size + 4095) & ~(uint64_t)4095;
  *handle = malloc(1);
  return 0;
}
int amdgpu_va_range_free(amdgpu_va_handle handle) {
  free(handle);
  return 0;
}
int amdgpu_bo_alloc(amdgpu_device_handle device, struct amdgpu_bo_alloc_request* request, amdgpu_bo_handle* buffer) {
  (void)device;
  *buffer = (amdgpu_bo_handle)(uintptr_t)new_handle(request->alloc_size);
  return 0;
}
int amdgpu_bo_free(amdgpu_bo_handle buffer) {
  (void)buffer;
  return 0;
}
int amdgpu_bo_export(amdgpu_bo_handle buffer, enum amdgpu_bo_handle_type type, uint32_t* handle) {
  (void)type;
  *handle = (uint32_t)(uintptr_t)buffer;
  return 0;
}
