// Portable kernel dialect on OpenCL C 1.2; the same names mean the same in prelude_vulkan.glsl.
#define MESH_OPENCL 1
#pragma OPENCL FP_CONTRACT ON

#define FN static inline
#define UNROLL _Pragma("unroll")
#define DONT_UNROLL _Pragma("nounroll")

#define LOCAL_ID(d) ((int)get_local_id(d))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

#define LOAD(name, index) name[index]
#define STORE(name, index, value) name[index] = (value)
#define LOAD4(name, index) name##_4[(index) >> 2]
#define LOAD_WORD(name, at) name##_4[at]
#define STORE4(name, index, value) name##_4[(index) >> 2] = (value)

#define TO_FLOAT(x) ((float)(x))
#define TO_INT(x) ((int)(x))
#define TO_UINT(x) ((uint)(x))
#define BITS_OF(x) as_uint(x)
#define FLOAT_OF_BITS(x) as_float(x)
#define FLOAT4_OF_BITS(x) as_float4(x)
#define make_float4(x, y, z, w) ((float4)(x, y, z, w))
#define make_uint4(x, y, z, w) ((uint4)(x, y, z, w))
#define splat_float4(x) ((float4)(x))
#define RSQRT(x) rsqrt(x)
#define FABS(x) fabs(x)
#define FMIN(x, y) fmin(x, y)
#define FMAX(x, y) fmax(x, y)
#define IMIN(x, y) min((int)(x), (int)(y))
#define IMAX(x, y) max((int)(x), (int)(y))
#define INFINITY_F INFINITY
#define IS_FINITE(x) ((as_uint(x) & 0x7f800000u) != 0x7f800000u)
#if defined(FP_FAST_FMAF) || defined(__FMA__)  // PoCL says the first on some processors only
#define MAD(a, b, c) fma(a, b, c)
#else
#define MAD(a, b, c) mad(a, b, c)
#endif

// --- entry: arguments are (pointer, byte offset) per binding, then the constants, then the grid ---
#define MESH_COMMA_0
#define MESH_COMMA_1 ,
#define MESH_COMMA_2 ,
#define MESH_COMMA_3 ,
#define MESH_COMMA_4 ,
#define MESH_COMMA_5 ,
#define MESH_COMMA_6 ,
#define MESH_COMMA_7 ,
#define MESH_CONST_R const
#define MESH_CONST_W
#define MESH_CONST_RW
#define MESH_CODE_R 1
#define MESH_CODE_W 2
#define MESH_CODE_RW 3

#define MESH_PARAM(i, access, type, name) \
  MESH_COMMA_##i __global MESH_CONST_##access type *mesh_p_##name, ulong mesh_o_##name
#define MESH_SCALAR(i, type, name) , type name
#define MESH_BIND(i, access, type, name)                                                               \
  __global MESH_CONST_##access type *name =                                                            \
      (__global MESH_CONST_##access type *)((__global MESH_CONST_##access char *)mesh_p_##name +       \
                                            mesh_o_##name);                                            \
  __global MESH_CONST_##access type##4 *name##_4 = (__global MESH_CONST_##access type##4 *)name;       \
  (void)name##_4;
// Aligned so that compilers load four neighbours together.
#define MESH_LOCAL(type, name, count) __local type name[count] __attribute__((aligned(16)));
#define MESH_ACCESS_CODE(i, access, type, name) +(MESH_CODE_##access << (2 * i))
#define MESH_CONSTANT_CODE(i, type, name) +(1 << i)

// Clang otherwise cuts vectors of 16 in two where it takes a processor to prefer narrow ones.
#ifdef __AVX512F__
#define MESH_WIDE __attribute__((min_vector_width(512)))
#else
#define MESH_WIDE
#endif
#define MESH_SUBGROUP  // subgroup.inc
#define MESH_ATTRIBUTES MESH_WIDE MESH_SUBGROUP __attribute__((reqd_work_group_size(WG_X, WG_Y, WG_Z)))
#define KERNEL_BEGIN                                                                          \
  __kernel MESH_ATTRIBUTES void KERNEL_NAME(BINDINGS(MESH_PARAM) CONSTANTS(MESH_SCALAR), int4 mesh_base, \
                                            int4 mesh_groups) {                               \
    SHARED(MESH_LOCAL)                                                                        \
    BINDINGS(MESH_BIND)
#define KERNEL_END }
