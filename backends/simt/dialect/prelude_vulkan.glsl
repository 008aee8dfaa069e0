#version 450
// Portable kernel dialect on GLSL 450 for Vulkan 1.2; the same names mean the same in prelude_opencl.cl.
// Buffers are descriptors, which drivers read fastest and validation sees; or, in programs compiled with MESH_DEVICE_ADDRESS 1,
// device addresses in the push constants, to which no binding limit applies. With MESH_TEXELS 1 those that are only
// read are texel buffers: llvmpipe gathers texels, but inserts loads from storage buffers lane by lane through the
// stack, eight times as slow.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#ifdef GL_KHR_shader_subgroup_shuffle
#extension GL_KHR_shader_subgroup_shuffle : enable
#endif
#define MESH_VULKAN 1

#define FN
#define UNROLL [[unroll]]
#define DONT_UNROLL [[dont_unroll]]

#define float4 vec4
#define int4 ivec4
#define uint4 uvec4

#define LOCAL_ID(d) int(gl_LocalInvocationID[d])
#define BARRIER() barrier()

#define LOAD(name, index) mesh_load_##name(int(index))
#define STORE(name, index, value) name.v[index] = (value)
#define LOAD4(name, index) mesh_load4_##name(int(index))
#define LOAD_WORD(name, at) mesh_word_##name(int(at))
#define STORE4(name, index, value) name##_4.v[(index) >> 2] = (value)  // not of 16-bit elements

#define TO_FLOAT(x) float(x)
#define TO_INT(x) int(x)
#define TO_UINT(x) uint(x)
#define BITS_OF(x) floatBitsToUint(x)
#define FLOAT_OF_BITS(x) uintBitsToFloat(x)
#define FLOAT4_OF_BITS(x) uintBitsToFloat(uvec4(x))
#define make_float4(x, y, z, w) vec4(x, y, z, w)
#define make_uint4(x, y, z, w) uvec4(x, y, z, w)
#define splat_float4(x) vec4(x)
#define RSQRT(x) inversesqrt(x)
#define FABS(x) abs(x)
#define FMIN(x, y) min(x, y)
#define FMAX(x, y) max(x, y)
#define IMIN(x, y) min(int(x), int(y))
#define IMAX(x, y) max(int(x), int(y))
#define INFINITY_F uintBitsToFloat(0x7f800000u)
#define IS_FINITE(x) ((floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u)
#define MAD(a, b, c) fma(a, b, c)

// --- entry: push constants hold 8 addresses and 16 words ---
layout(push_constant, std430) uniform MeshPush {
  uvec2 address[8];
  uint words[16];
} mesh_push;

// Qualified, because tools that look for hazards between dispatches need to know who only reads.
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer MeshR_float { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer MeshR_int { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer MeshR_uint { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer MeshR4_float { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer MeshR4_int { ivec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer MeshR4_uint { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer MeshW_float { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer MeshW_int { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer MeshW_uint { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer MeshW4_float { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer MeshW4_int { ivec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer MeshW4_uint { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer MeshRW_float { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer MeshRW_int { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer MeshRW_uint { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer MeshRW4_float { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer MeshRW4_int { ivec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer MeshRW4_uint { uvec4 v[]; };

#define MESH_CODE_R 1
#define MESH_CODE_W 2
#define MESH_CODE_RW 3
#define MESH_WORD_int(w) int(w)
#define MESH_WORD_uint(w) (w)
#define MESH_WORD_float(w) uintBitsToFloat(w)
// LOAD4, STORE4 and LOAD_WORD, whose place is in words of 16 bytes, move 16 bytes: 2^MESH_WIDE elements.
#define MESH_WIDE_int 2
#define MESH_WIDE_uint 2
#define MESH_WIDE_float 2

#define MESH_BIND(i, access, type, name) MESH_BIND_##access(i, type, name)
#define MESH_BIND_R(i, type, name) MESH_POINTERS_OF(MESH_READ_BLOCK(ALIASED_##i), i, type, name)
#define MESH_BIND_W(i, type, name) MESH_POINTERS(MeshW, i, type, name)
#define MESH_BIND_RW(i, type, name) MESH_POINTERS(MeshRW, i, type, name)
#define MESH_POINTERS_OF(block, i, type, name) MESH_POINTERS(block, i, type, name)
#define MESH_POINTERS(block, i, type, name)                    \
  block##_##type name = block##_##type(mesh_push.address[i]); \
  block##4_##type name##_4 = block##4_##type(mesh_push.address[i]);
// Two buffers are different memory to a compiler of SPIR-V, which may move a load past a store to the other one, unless both are
// Aliased (the specification of SPIR-V, sections 2.18.2 and 3.20): the bindings of which the spec says so (aliasing.h), whose memory
// is written, so that they are not readonly; and the two views of a binding that is read and written. With device addresses
// all buffers are AliasedPointer, by the variables that hold them.
#define MESH_ALIASED spirv_decorate(20)
#define MESH_QUALIFIER_0_R readonly
#define MESH_QUALIFIER_0_W writeonly
#define MESH_QUALIFIER_0_RW MESH_ALIASED
#define MESH_QUALIFIER_1_R MESH_ALIASED
#define MESH_QUALIFIER_1_W MESH_ALIASED writeonly
#define MESH_QUALIFIER_1_RW MESH_ALIASED
#define MESH_QUALIFIER(aliased, access) MESH_QUALIFIER_OF(aliased, access)
#define MESH_QUALIFIER_OF(aliased, access) MESH_QUALIFIER_##aliased##access
#define MESH_TEXEL_QUALIFIER_0
#define MESH_TEXEL_QUALIFIER_1 MESH_ALIASED
#define MESH_TEXEL_QUALIFIER(aliased) MESH_TEXEL_QUALIFIER_OF(aliased)
#define MESH_TEXEL_QUALIFIER_OF(aliased) MESH_TEXEL_QUALIFIER_##aliased
// Two views of one descriptor: by element and by four.
#define MESH_STORAGE(i, access, type, name)                                        \
  layout(set = 0, binding = i, std430) MESH_QUALIFIER(ALIASED_##i, _##access) \
  buffer MeshBuffer_##name { type v[]; } name;                                     \
  layout(set = 0, binding = i, std430) MESH_QUALIFIER(ALIASED_##i, _##access) \
  buffer MeshBuffer4_##name { type##4 v[]; } name##_4;
#define MESH_STORAGE_LOAD(type, name)                        \
  type mesh_load_##name(int index) { return name.v[index]; } \
  type##4 mesh_load4_##name(int index) { return name##_4.v[index >> MESH_WIDE_##type]; } \
  type##4 mesh_word_##name(int at) { return name##_4.v[at]; }
#define MESH_FETCH_int(name, index) MESH_WORD_int(texelFetch(name, index).x)
#define MESH_FETCH_uint(name, index) texelFetch(name, index).x
#define MESH_FETCH_float(name, index) MESH_WORD_float(texelFetch(name, index).x)
#define MESH_FETCH4(type, name, index)                                                                         \
  type##4(MESH_FETCH_##type(name, index), MESH_FETCH_##type(name, index + 1), MESH_FETCH_##type(name, index + 2), \
          MESH_FETCH_##type(name, index + 3))
#define MESH_FETCH4_int(name, index) MESH_FETCH4(int, name, index)
#define MESH_FETCH4_uint(name, index) MESH_FETCH4(uint, name, index)
#define MESH_FETCH4_float(name, index) MESH_FETCH4(float, name, index)
#define MESH_TEXEL(i, type, name)                                                  \
  layout(set = 0, binding = i) MESH_TEXEL_QUALIFIER(ALIASED_##i) uniform usamplerBuffer name; \
  type mesh_load_##name(int index) { return MESH_FETCH_##type(name, index); }      \
  type##4 mesh_load4_##name(int index) { return MESH_FETCH4_##type(name, index); } \
  type##4 mesh_word_##name(int at) { return MESH_FETCH4_##type(name, (at << MESH_WIDE_##type)); }
#define MESH_DECLARE_W(i, type, name) MESH_STORAGE(i, W, type, name)
#define MESH_DECLARE_RW(i, type, name) MESH_STORAGE(i, RW, type, name) MESH_STORAGE_LOAD(type, name)
#define MESH_DECLARE(i, access, type, name) MESH_DECLARE_##access(i, type, name)
// The same from an address.
#define MESH_ADDRESS_LOAD(i, access, type, name) MESH_ADDRESS_LOAD_##access(i, type, name)
#define MESH_ADDRESS_LOAD_W(i, type, name)
#define MESH_ADDRESS_LOAD_R(i, type, name) MESH_ADDRESS_LOADS_OF(MESH_READ_BLOCK(ALIASED_##i), i, type, name)
#define MESH_ADDRESS_LOAD_RW(i, type, name) MESH_ADDRESS_LOADS(MeshRW, i, type, name)
#define MESH_READ_BLOCK_0 MeshR
#define MESH_READ_BLOCK_1 MeshRW
#define MESH_READ_BLOCK(aliased) MESH_READ_BLOCK_OF(aliased)
#define MESH_READ_BLOCK_OF(aliased) MESH_READ_BLOCK_##aliased
#define MESH_ADDRESS_LOADS_OF(block, i, type, name) MESH_ADDRESS_LOADS(block, i, type, name)
#define MESH_ADDRESS_LOADS(block, i, type, name)                     \
  type mesh_load_##name(int index) {                                 \
    block##_##type mesh_from = block##_##type(mesh_push.address[i]); \
    return mesh_from.v[index];                                       \
  }                                                                  \
  type##4 mesh_load4_##name(int index) {                             \
    block##4_##type mesh_from = block##4_##type(mesh_push.address[i]); \
    return mesh_from.v[index >> MESH_WIDE_##type];                   \
  }                                                                  \
  type##4 mesh_word_##name(int at) {                                 \
    block##4_##type mesh_from = block##4_##type(mesh_push.address[i]); \
    return mesh_from.v[at];                                          \
  }
#define MESH_SCALAR(i, type, name) type name = MESH_WORD_##type(mesh_push.words[i]);
#define MESH_LOCAL(type, name, count) shared type name[count];
#define MESH_ACCESS_CODE(i, access, type, name) +(MESH_CODE_##access << (2 * i))
#define MESH_CONSTANT_CODE(i, type, name) +(1 << i)

#define KERNEL_BEGIN                                                                                  \
  layout(local_size_x = WG_X, local_size_y = WG_Y, local_size_z = WG_Z) in;                           \
  MESH_GLOBALS                                                                                        \
  SHARED(MESH_LOCAL)                                                                                  \
  void main() {                                                                                       \
    MESH_LOCALS                                                                                       \
    CONSTANTS(MESH_SCALAR)
#define KERNEL_END }
