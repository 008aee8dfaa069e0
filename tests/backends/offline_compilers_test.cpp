// The readers of what the offline compilers of Intel and NVIDIA print, on short listings as they print them.
#ifdef MESHLOOM_HAS_OPENCL
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "backends/opencl/device/temporary_folder.h"
#include "backends/opencl/inspect/elf.h"
#include "backends/opencl/inspect/families.h"
#include "backends/opencl/inspect/ptxas_report.h"
#include "backends/opencl/inspect/run_program.h"
#include "backends/opencl/inspect/sass_listing.h"
#include "backends/opencl/inspect/xe_listing.h"
#include "backends/opencl/inspect/ze_info.h"
#include "tests/message_of.h"

namespace meshloom::backends::opencl {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using tests::message_of;

const hal::LoopInspection& main_of(const std::vector<hal::LoopInspection>& loops) {
  for (const hal::LoopInspection& loop : loops)
    if (loop.main) return loop;
  throw std::runtime_error("no main loop");
}

std::string without(std::string text, const std::string& part) {
  const std::size_t at = text.find(part);
  if (at == std::string::npos) throw std::runtime_error(part);
  return text.erase(at, part.size());
}

// A tile's copy and its products, which read the next load's result a turn later.
constexpr const char* kXe = R"(//.kernel matmul
//.platform DG2
//.spill size 96
//.instCount 1964
//.declare BuiltInR0 (0)  rf=r size=32 type=ud align=16 words (r0.0)
.kernel_matmul:
_main:
(W)     mov (1|M0)               r7.3<1>:d     0:w                                                   // $326
        load.ugm.d32x4.a64.ca.ca (8|M0)  r11:4  [r84:2]            {$12} // ex_desc:0x0; desc:0x4483580 // $352
// B005: [inDivergent],  Preds:{B006, B004},  Succs:{B006, B007}
_0_399:
        store.slm.d32x4.a32 (8|M0)  [r100:1]    r11:4              {$12.dst,$9} // ex_desc:0x0; desc:0x20E3504 // $323
        load.ugm.d32x4.a64.ca.ca (8|M0)  r11:4  [r84:2]            {$12} // ex_desc:0x0; desc:0x4483580 // $352
(W)     send.gtwy (1|M0)         null     r3      null:0  0x0            0x02000004           {A@2,$0} // wr:1+0, rd:0; signal barrier // $325
(W)     sync.bar                             null                                                    // $325
(W)     mov (1|M0)               r7.4<1>:d     0:w                                                   // $326
_0_400:
        load.slm.d32x4.a32 (8|M0)  r15:4        [r3:1]             {A@2,$13} // ex_desc:0x0; desc:0x2483500 // $329
        sync.allwr                           ($2,$13)                                                // $353
        mad (8|M0)               r23.0<1>:f    r11.0<1;0>:f      r19.0<1;0>:f      r15.0<1>:f       {Compacted} // $353 R{} IR{}{O:2,O:4,O:3,},  {BC=1}
        mad (16|M0)              r24.0<1>:f    r12.0<1;0>:f      r20.0<1;0>:f      r15.0<1>:f       {Compacted} // $354
        mad (8|M0)               r3.0<1>:d     r99.0<1;0>:d      r7.4<0;0>:d       528:w               {$0.src} // $328
(W)     add (1|M0)               r7.4<1>:d     r7.4<0;1,0>:d     1:w               {Compacted}       // $700
(W)     cmp (8|M0)    (lt)f0.0   null<1>:d     r7.4<0;1,0>:d     4:w               {I@1}             // $706
(W&f0.0) jmpi                                _0_400                                                  //  ALU pipe: int; $592
_0_401:
(f0.0)  goto.b (8|M0)                        _0_402            _0_399                                // $707
_0_402:
        join (8|M0)                          L7152                                                   // 
L7152:
(W)     send.gtwy (1|M0)         null     r1      null:0  0x0            0x02000010           {EOT}  // wr:1+0, rd:0; end of thread
)";

TEST(XeListing, ALoopIsCounted) {
  const xe::Listing listing = xe::parse_listing(kXe, 8);
  EXPECT_EQ(listing.spill_size, 96);
  const auto loops = xe::inspect_loops(listing);
  ASSERT_EQ(loops.size(), 2u);
  const hal::LoopInspection& main = main_of(loops);
  EXPECT_EQ(main.label, "_0_399");
  EXPECT_FALSE(main.guessed) << "the loop inside counts to 4";
  EXPECT_TRUE(loops[1].product);
  EXPECT_EQ(loops[1].label, "_0_400");
  EXPECT_EQ(loops[1].multiply_cycles, 1 + 2) << "a product of integers is an address";
  EXPECT_EQ(loops[1].issue_cycles, 8 + 1) << "16 invocations take two cycles of an engine of 8";
  EXPECT_EQ(main.multiply_cycles, 4 * 3);
  EXPECT_THAT(main.device_loads, ElementsAre(Pair(16, 1)));
  EXPECT_THAT(main.local_loads, ElementsAre(Pair(16, 4)));
  EXPECT_EQ(main.waits, 1);
  EXPECT_EQ(main.exposed_waits, 0) << "the products stand between the load and its use";
  EXPECT_FALSE(main.local_bound().has_value()) << "what is not known is not said";
  // An engine of 16 lanes takes each in one cycle.
  EXPECT_EQ(xe::inspect_loops(xe::parse_listing(kXe, 16))[1].multiply_cycles, 2);
}

// The matrix unit multiplies while others issue, eight times as fast as the engine: 8 rows by 8 lanes and 16 steps of K.
TEST(XeListing, MatrixProductsTakeTheirUnit) {
  const auto loop = [](const std::string& lines, int native) {
    return xe::inspect_loops(xe::parse_listing("_main:\n" + lines, native)).at(0);
  };
  const std::string of_8 =
      "        dpas.8x8 (8|M0)  r26:f  r26:f  r38:bf  r33.0:bf  {Atomic} // $41\n"
      "        dpas.8x4 (8|M0)  r34:f  r34:f  r38:bf  r33.0:bf  {$5} // $42\n";
  const hal::LoopInspection products = loop(of_8, 8);
  EXPECT_EQ(products.multiply_cycles, 16 + 8);
  EXPECT_EQ(products.issue_cycles, 16 + 8) << "issuing them takes less";
  const std::string of_16 = "        dpas.8x8 (16|M0)  r26:f  r26:f  r38:hf  r33.0:hf  {$5} // $41\n";
  EXPECT_EQ(loop(of_16, 16).multiply_cycles, 16);
  std::string busy = of_16;
  for (int i = 0; i < 19; ++i)
    busy += "        add (16|M0)  r2.0<1>:d  r3.0<1;1,0>:d  r4.0<1;1,0>:d  {I@1} // $50\n";
  EXPECT_EQ(loop(busy, 16).issue_cycles, 20) << "one for dpas, too";
  EXPECT_EQ(loop(busy, 16).multiply_cycles, 16);
}

// The negative control: the wait stands where the load does.
TEST(XeListing, AWaitBeforeTheProductsIsExposed) {
  std::string early = without(kXe, "$12.dst,");
  early.replace(early.find("{A@2,$0}"), 8, "{$12.dst}");
  EXPECT_EQ(main_of(xe::inspect_loops(xe::parse_listing(early, 8))).exposed_waits, 1);
}

TEST(XeListing, AMessageWaitsForTheOneThatHadItsScoreboard) {
  std::string early = without(kXe, "$12.dst,");
  early.replace(early.find("{A@2,$0}"), 8, "{A@2,$12}");
  EXPECT_EQ(main_of(xe::inspect_loops(xe::parse_listing(early, 8))).exposed_waits, 1);
}

TEST(XeListing, MessagesOfEveryFormAreRead) {
  const auto loads = [](const std::string& line) {
    return xe::inspect_loops(xe::parse_listing("_main:\n" + line + "\n", 16)).at(0).device_loads;
  };
  EXPECT_THAT(
      loads("(W) load.ugm.d32x32t.a32.ca.cc (1|M0)  r1:1 bti[255][r127:1]   {A@1,$0} // desc:0x6219D500"),
      ElementsAre())
      << "one for the whole subgroup is a scalar's";
  EXPECT_THAT(loads("load.ugm.d16u32.a64 (16|M0)  r1:1 [r127:1]   {A@1,$0} // desc"),
              ElementsAre(Pair(2, 1)));
  EXPECT_THAT(loads("send.ugm (16|M0) r2 r4 null:0 0x0 0x04403500 {$3} // wr:2+0, rd:8; load.ugm.d32x4.a64"),
              ElementsAre(Pair(16, 1)));
  const auto scratch = [](const std::string& line) {
    return xe::inspect_loops(xe::parse_listing("_main:\n" + line + "\n", 16)).at(0).scratch_accesses;
  };
  EXPECT_EQ(scratch("(W) load.ugm.d32x32t.a32.ca.ca (1|M0) r1:2 ss[a0.2][r4:1-0x1000] {$1} // "), 1);
  EXPECT_EQ(scratch("(W) send.dc0 (16|M0) r4 r17 null:0 0x0 0x021C0000 {$9} // wr:1h+0, rd:1; hword scratch "
                    "block read x1"),
            1);
}

TEST(XeListing, OtherTextsAreRefused) {
  EXPECT_THAT(message_of([] { xe::parse_listing("", 8); }), HasSubstr("must have instructions"));
  EXPECT_THAT(message_of([] { xe::parse_listing("//.kernel k\n", 8); }), HasSubstr("must have instructions"));
  EXPECT_THAT(message_of([] { xe::parse_listing("BB0:\n\tv_mov_b32 v1, v2\n\tv_add_f32 v1, v2, v3\n", 8); }),
              HasSubstr("must be assembly of Xe"));
}

// With the upper half of the encoding of an sm_86, of which bits 41 and on are the scoreboards.
constexpr const char* kSass = R"(	.section	.text.matmul,"ax",@progbits
matmul:
.text.matmul:
        /*0000*/                   MOV R4, RZ ;                                      /* 0x00000a0000017a02 */
                                                                                     /* 0x000fe40000000f00 */
        /*0010*/                   LDG.E.128 R28, [R2.64] ;                          /* 0x0000000402007981 */
                                                                                     /* 0x000ea8000c1e1d00 */
.L_x_2:
        /*0a10*/                   STS.128 [R16], R28 ;                              /* 0x0000003010007388 */
                                                                                     /* 0x004fe80000000c00 */
        /*0a20*/                   LDG.E.128 R28, [R2.64] ;                          /* 0x0000000402007981 */
                                                                                     /* 0x000ea8000c1e1d00 */
        /*0a30*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;                     /* 0x0000000000007b1d */
                                                                                     /* 0x000fe20000010000 */
        /*0a40*/                   LDS.128 R32, [R114] ;                             /* 0x0000000072207984 */
                                                                                     /* 0x000e280000000c00 */
        /*0a50*/                   FFMA R93, R28.reuse, R32, R93 ;                   /* 0x000000201c5d7223 */
                                                                                     /* 0x001fe2000000005d */
        /*0a60*/                   HFMA2.MMA R5, -RZ, RZ, 0, 0 ;                     /* 0x000000201c5d7223 */
                                                                                     /* 0x000fe2000000005d */
        /*0a70*/                   IADD3 R4, R4, 0x1, RZ ;                           /* 0x0000000104047810 */
                                                                                     /* 0x000fca0007ffe0ff */
        /*0a80*/                   ISETP.LT.AND P0, PT, R4, R9, PT ;                 /* 0x0000000404047c10 */
                                                                                     /* 0x000fca0007ffe0ff */
        /*0a90*/               @P0 BRA `(.L_x_2) ;                                   /* 0xffffb5f000007947 */
                                                                                     /* 0x000fea000383ffff */
        /*0aa0*/                   EXIT ;                                            /* 0x000000000000794d */
                                                                                     /* 0x000fea0003800000 */
)";

TEST(SassListing, ALoopIsCounted) {
  const auto loops = sass::inspect_loops(sass::parse_listing(kSass, 128, 512));
  ASSERT_EQ(loops.size(), 1u);
  const hal::LoopInspection& loop = loops[0];
  EXPECT_EQ(loop.label, ".L_x_2");
  EXPECT_EQ(loop.issue_cycles, 9);
  EXPECT_EQ(loop.multiply_cycles, 1) << "a product of zeros loads a constant";
  EXPECT_THAT(loop.device_loads, ElementsAre(Pair(16, 1)));
  EXPECT_THAT(loop.local_loads, ElementsAre(Pair(16, 1)));
  EXPECT_EQ(loop.waits, 1);
  EXPECT_EQ(loop.exposed_waits, 0);
}

// The negative control: the barrier waits for the load, by its mask in the encoding.
TEST(SassListing, AWaitBeforeTheProductsIsExposed) {
  std::string early = kSass;
  early.replace(early.find("0x000fe20000010000"), 18, "0x004fe20000010000");
  EXPECT_EQ(sass::inspect_loops(sass::parse_listing(early, 128, 512)).at(0).exposed_waits, 1);
}

TEST(SassListing, TensorCoresWorkBesideTheIssue) {
  std::string matrix = kSass;
  matrix.replace(matrix.find("FFMA R93, R28.reuse, R32, R93"), 29, "HMMA.16816.F32 R4, R8, R6, R4");
  const auto slow = sass::inspect_loops(sass::parse_listing(matrix, 128, 512)).at(0);
  EXPECT_EQ(slow.multiply_cycles, 4096 / 128);
  EXPECT_EQ(slow.multiply_share(), 1) << "32 cycles of the unit hide 9 instructions";
  EXPECT_EQ(sass::inspect_loops(sass::parse_listing(matrix, 1024, 2048)).at(0).multiply_share(), 4.0 / 9);
  matrix.replace(matrix.find("HMMA.16816.F32"), 14, "IMMA.16832.S8.S8");
  EXPECT_EQ(sass::inspect_loops(sass::parse_listing(matrix, 128, 512)).at(0).multiply_cycles, 8192 / 512);
}

TEST(SassListing, OtherTextsAreRefused) {
  EXPECT_THAT(message_of([] { sass::parse_listing("", 128, 512); }), HasSubstr("must have instructions"));
  EXPECT_THAT(message_of([] { sass::parse_listing("        /*0000*/   NOP ;\n", 128, 512); }),
              HasSubstr("must have the encoding"));
}

TEST(PtxasReport, IsRead) {
  hal::Inspection found;
  read_ptxas_report(R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_86'
ptxas info    : Function properties for k
    16 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16896 bytes smem, 512 bytes cmem[0], 16 bytes cmem[2]
)",
                    found);
  EXPECT_EQ(found.registers, 128);
  EXPECT_EQ(found.spilled, 6);
  EXPECT_EQ(found.scratch_bytes, 16);
  EXPECT_EQ(found.local_bytes, 16896);
  hal::Inspection nothing;
  read_ptxas_report("ptxas fatal   : Unresolved extern function 'f'", nothing);
  EXPECT_FALSE(nothing.registers || nothing.spilled || nothing.scratch_bytes || nothing.local_bytes);
}

TEST(PtxasReport, WarpsAreWhatRegistersAndLocalMemoryHaveRoomFor) {
  const Multiprocessor ga102{"sm_86", 48, 16, 102400, 128}, gh100{"sm_90", 64, 32, 233472, 1024};
  EXPECT_EQ(warps_of(ga102, 128, 16896, 256), 4);  // two workgroups of eight warps
  EXPECT_EQ(warps_of(ga102, 40, 0, 256), 12);
  EXPECT_EQ(warps_of(ga102, 40, 49152, 64), 1);  // two workgroups of two warps
  EXPECT_EQ(warps_of(gh100, 32, 0, 1024), 16);
}

TEST(ZeInfo, IsRead) {
  hal::Inspection found;
  read_ze_info(R"(---
version:         '1.20'
kernels:
  - name:            matmul_gpu_tile
    execution_env:
      barrier_count:   1
      grf_count:       128
      simd_size:       8
      slm_size:        16896
    payload_arguments:
      - arg_type:        global_id_offset
        offset:          0
        size:            12
    per_thread_memory_buffers:
      - type:            global
        usage:           private_space
        size:            256
        is_simt_thread:  true
      - type:            scratch
        usage:           spill_fill_space
        size:            1024
kernels_misc_info:
  - name:            matmul_gpu_tile
    args_info:
      - index:           0
        size:            4
...
)",
               found);
  EXPECT_EQ(found.subgroup, 8);
  EXPECT_EQ(found.registers, 128);
  EXPECT_EQ(found.local_bytes, 16896);
  EXPECT_EQ(found.scratch_bytes, 256 + 1024 / 8);
  hal::Inspection nothing;
  read_ze_info("kernels: none", nothing);
  EXPECT_FALSE(nothing.registers || nothing.scratch_bytes);
}

// The compiler's own, of programs with constants in memory, may come first.
TEST(ZeInfo, AnEmptyKernelIsNotTheProgram) {
  hal::Inspection found;
  read_ze_info(R"(---
kernels:
  - name:            Intel_Symbol_Table_Void_Program
    execution_env:
      grf_count:       64
      simd_size:       32
  - name:            flash_attention_dpas
    execution_env:
      grf_count:       256
      simd_size:       8
...
)",
               found);
  EXPECT_EQ(found.subgroup, 8);
  EXPECT_EQ(found.registers, 256);
}

TEST(Elf, SectionsAreFoundAndWhatIsCutOffIsRefused) {
  // A header, two sections (the names, and "k"), each of whose headers follows.
  const auto number = [](std::string& file, std::size_t at, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      file[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
  };
  std::string file(64 + 2 * 64, '\0');
  file.replace(0, 6,
               std::string("\x7f"
                           "ELF\x02\x01",
                           6));
  number(file, 40, 64, 8);
  number(file, 58, 64, 2);
  number(file, 60, 2, 2);
  number(file, 62, 0, 2);
  file += std::string("\0.text.k\0", 9) + "code";
  number(file, 64 + 24, 192, 8), number(file, 64 + 32, 9, 8);
  number(file, 128, 1, 4), number(file, 128 + 24, 201, 8), number(file, 128 + 32, 4, 8);
  const auto sections = elf_sections(file);
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[1].name, ".text.k");
  EXPECT_EQ(sections[1].bytes, "code");
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes)
    EXPECT_THAT(message_of([&] { elf_sections(std::string_view(file).substr(0, bytes)); }),
                HasSubstr("whole 64-bit ELF"))
        << bytes;
}

// Listings come from programs that others wrote: whatever stands in them is read or refused.
TEST(OfflineCompilers, SpoiledTextsAreReadOrRefused) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::string letters = "@$(){}[]<>|:;,.*/0123456789 \n\t_LxdfR`";
  for (const char* whole : {kXe, kSass})
    for (int round = 0; round < 1500; ++round) {
      std::string text = whole;
      for (std::size_t spoiled = 1 + below(8); spoiled > 0; --spoiled) {
        const std::size_t at = below(text.size());
        if (below(3) == 0)
          text.erase(at, below(40));
        else if (below(2) == 0)
          text.insert(at, text.substr(below(text.size()), below(200)));
        else
          text[at] = letters[below(letters.size())];
        if (text.empty()) text = " ";
      }
      for (const auto& read :
           {std::function<void()>([&] { xe::inspect_loops(xe::parse_listing(text, 8)); }),
            std::function<void()>([&] { sass::inspect_loops(sass::parse_listing(text, 128, 512)); }),
            std::function<void()>([&] {
              hal::Inspection found;
              read_ze_info(text, found);
              read_ptxas_report(text, found);
            })})
        try {
          read();
        } catch (const hal::Error&) {
        }
    }
}

TEST(RunProgram, TakesArgumentsAsTheyAre) {
  const TemporaryFolder folder("meshloom-test");
  const ProgramResult echoed =
      run_program("/bin/echo", {"$(touch x)", "a b;", "'"}, folder.path(), {"NAME=value"});
  EXPECT_EQ(echoed.code, 0);
  EXPECT_EQ(echoed.output, "$(touch x) a b; '\n");
  EXPECT_THAT(folder.names(""), ElementsAre());
  EXPECT_EQ(run_program("/bin/sh", {"-c", "echo $NAME; exit 3"}, folder.path(), {"NAME=value"}).output,
            "value\n");
  EXPECT_EQ(run_program("/bin/sh", {"-c", "exit 3"}, folder.path()).code, 3);
  EXPECT_THAT(message_of([&] { run_program("/bin/sleep", {"60"}, folder.path(), {}, 0.1); }),
              HasSubstr("has not ended"));
  EXPECT_THAT(message_of([&] { run_program("/nonexistent", {}, folder.path()); }),
              HasSubstr("can be started"));
  EXPECT_EQ(find_program("meshloom-no-such-program"), "");
  EXPECT_NE(find_program("sh"), "");
}

}  // namespace
}  // namespace meshloom::backends::opencl
#endif
