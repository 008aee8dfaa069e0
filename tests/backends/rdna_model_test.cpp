// The reader of AMD's listings and the model of issue cycles, on short listings.
#ifdef MESHLOOM_HAS_VULKAN
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "backends/vulkan/inspect/rdna_listing.h"
#include "backends/vulkan/inspect/rdna_model.h"
#include "backends/vulkan/inspect/statistics.h"
#include "tests/message_of.h"

namespace meshloom::backends::vulkan {
namespace {

using rdna::cost_of;
using rdna::Family;
using rdna::inspect_loops;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const Family& family(const std::string& name) {
  const Family* found = rdna::family_of("Null hardware (RADV " + name + ")");
  if (!found) throw std::runtime_error(name);
  return *found;
}

rdna::Cost cost(const std::string& line, const std::string& of, std::int64_t wave) {
  return cost_of(rdna::parse_listing("\t" + line + "\n").at(0).code.at(0), family(of), wave);
}

const hal::LoopInspection& main_of(const std::vector<hal::LoopInspection>& loops) {
  for (const hal::LoopInspection& loop : loops)
    if (loop.main) return loop;
  throw std::runtime_error("no main loop");
}

TEST(RdnaModel, CostsAreByInstructionWaveAndFamily) {
  struct Row {
    const char* line;
    const char* family;
    std::int64_t wave;
    double issue, multiply;
  };
  for (const Row& row : {
           Row{"v_fmac_f32_e32 v1, v2, v3", "NAVI21", 32, 1, 1},
           Row{"v_fmac_f32_e32 v1, v2, v3", "NAVI21", 64, 2, 2},
           Row{"v_fmac_f32_e32 v1, v2, v3", "NAVI31", 64, 1, 1},  // both halves at once
           Row{"v_mul_f32_e32 v1, v2, v3", "NAVI31", 64, 1, 0},
           Row{"v_fma_f16 v1, v2, v3, v1", "NAVI31", 64, 1, 1},
           Row{"v_add_nc_u32_e32 v1, v2, v3", "NAVI31", 64, 2, 0},
           Row{"v_lshrrev_b32_e32 v1, 4, v1", "NAVI31", 64, 2, 0},
           Row{"v_pk_fma_f16 v1, v2, v3, v1", "NAVI31", 64, 2, 2},
           Row{"v_fma_mix_f32 v1, v2, v3, v1", "NAVI31", 64, 2, 2},
           Row{"v_dot2_f32_f16 v1, v2, v3, v1", "NAVI21", 64, 2, 2},
           Row{"v_mul_lo_u32 v1, v2, v3", "NAVI21", 64, 8, 0},
           Row{"v_mad_u64_u32 v[1:2], null, v2, v3, v[4:5]", "NAVI31", 32, 4, 0},
           Row{"v_fma_f64 v[0:1], v[2:3], v[4:5], v[0:1]", "NAVI31", 32, 16, 16},
           Row{"v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "NAVI31", 64, 32, 32},
           Row{"v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "GFX1201", 64, 16, 16},
           Row{"v_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6", "NAVI31", 32, 1, 1},
           Row{"v_dual_fmac_f32 v1, v2, v3 :: v_dual_mov_b32 v4, v5", "NAVI31", 32, 1, 0.5},
           Row{"s_add_u32 s1, s1, s2", "NAVI31", 64, 0, 0},
           Row{"ds_load_b128 v[0:3], v4", "NAVI31", 64, 0, 0},
       }) {
    const rdna::Cost found = cost(row.line, row.family, row.wave);
    EXPECT_EQ(found.issue, row.issue) << row.line << " on " << row.family << " in waves of " << row.wave;
    EXPECT_EQ(found.multiply, row.multiply) << row.line << " on " << row.family;
  }
}

// A tile that is fetched while the one before it is multiplied: the wait stands behind the products.
constexpr const char* kPrefetched = R"(BB0:
	s_movk_i32 s4, 0x100                                        ; b0040100
BB1:
	buffer_load_dwordx4 v[8:11], v1, s[0:3], 0 offen            ; e0381000
	ds_read_b128 v[4:7], v2                                     ; dbfc0000
	s_waitcnt lgkmcnt(0)                                        ; bf8c0000
	v_fmac_f32_e32 v20, v4, v5                                  ; 56282904
	v_fmac_f32_e32 v21, v6, v7                                  ; 562a2b06
	s_waitcnt vmcnt(0)                                          ; bf8c3f70
	ds_write_b128 v3, v[8:11]                                   ; db7c0000
	s_barrier                                                   ; bf8a0000
	v_add_nc_u32_e32 v1, 64, v1                                 ; 4a020240
	s_sub_u32 s4, s4, 1                                         ; 80848104
	s_cbranch_scc0 BB1                                          ; bf840000
BB2:
	s_endpgm                                                    ; bf810000
)";

TEST(RdnaModel, ALoopIsCounted) {
  const auto loops = inspect_loops(kPrefetched, family("NAVI21"), 64);
  ASSERT_EQ(loops.size(), 1u);
  const hal::LoopInspection& loop = loops[0];
  EXPECT_EQ(loop.label, "BB1");
  EXPECT_TRUE(loop.main && loop.product && loop.innermost && !loop.guessed);
  EXPECT_EQ(loop.instructions, 11);
  EXPECT_EQ(loop.issue_cycles, 3 * 2);
  EXPECT_EQ(loop.multiply_cycles, 2 * 2);
  EXPECT_DOUBLE_EQ(loop.multiply_share(), 4.0 / 6);
  EXPECT_EQ(loop.local_cycles, 2 * 16 * 64 / 64);  // one read and one write of 16 bytes
  EXPECT_DOUBLE_EQ(loop.local_bound().value(), 4.0 / 32);
  EXPECT_THAT(loop.device_loads, ElementsAre(Pair(16, 1)));
  EXPECT_THAT(loop.local_loads, ElementsAre(Pair(16, 1)));
  EXPECT_EQ(loop.waits, 1);
  EXPECT_EQ(loop.exposed_waits, 0);
}

// The negative control of the line above: the same loop whose wait stands where the load does.
TEST(RdnaModel, AWaitBeforeTheProductsIsExposed) {
  std::string early = kPrefetched;
  const std::string wait = "\ts_waitcnt vmcnt(0)                                          ; bf8c3f70\n";
  early.erase(early.find(wait), wait.size());
  early.insert(early.find("\tds_read_b128"), wait);
  const auto loops = inspect_loops(early, family("NAVI21"), 64);
  EXPECT_EQ(loops.at(0).waits, 1);
  EXPECT_EQ(loops.at(0).exposed_waits, 1);
  EXPECT_EQ(loops.at(0).multiply_cycles, 4) << "nothing else differs";
}

// Of two loads, a wait that leaves one under way waits for the older one, a turn after it was issued.
TEST(RdnaModel, AWaitMayLeaveLoadsUnderWay) {
  const auto loops = inspect_loops(R"(BB0:
	global_load_b32 v1, v9, s[0:1]
	v_fma_f32 v3, v4, v5, v3
	s_wait_loadcnt 0x1
	v_add_f32_e32 v3, v3, v1
	s_cbranch_scc1 BB0
	s_endpgm
)",
                                   family("GFX1201"), 32);
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].waits, 1);
  EXPECT_EQ(loops[0].exposed_waits, 0);
}

// A copy by all lanes around the products: counted as often as it turns, which the code says.
TEST(RdnaModel, LoopsInsideCountAsOftenAsTheyTurn) {
  const std::string listing = R"(BB0:
	v_mov_b32_e32 v1, 0
BB1:
	v_mov_b32_e32 v2, v0
BB2:
	buffer_load_dword v3, v2, s[0:3], 0 offen
	s_waitcnt vmcnt(0)
	ds_write_b32 v2, v3
	v_add_nc_u32_e32 v2, 0x100, v2
	v_cmp_gt_u32_e32 vcc_lo, 0x800, v2
	s_cbranch_vccnz BB2
BB3:
	s_barrier
	s_movk_i32 s5, 0x4
BB4:
	ds_read_b32 v4, v1
	v_fmac_f32_e32 v5, v4, v4
	s_addk_i32 s5, 0x1
	s_cmp_lt_i32 s5, 16
	s_cbranch_scc1 BB4
BB5:
	s_cbranch_scc1 BB1
BB6:
	s_endpgm
)";
  const auto loops = inspect_loops(listing, family("NAVI21"), 32);
  ASSERT_EQ(loops.size(), 3u);
  const hal::LoopInspection& main = main_of(loops);
  EXPECT_EQ(main.label, "BB1");
  EXPECT_FALSE(main.guessed);
  EXPECT_THAT(main.device_loads, ElementsAre(Pair(4, 8)));
  EXPECT_THAT(main.local_loads, ElementsAre(Pair(4, 12)));
  EXPECT_EQ(main.multiply_cycles, 12);
  EXPECT_EQ(main.issue_cycles, 1 + 8 * 2 + 12);
  EXPECT_EQ(main.exposed_waits, 8);
  EXPECT_TRUE(loops[2].product) << loops[2].label;
  EXPECT_EQ(loops[2].depth, 1);

  // A limit that stands in a register says nothing.
  std::string unknown = listing;
  unknown.replace(unknown.find("s5, 16"), 6, "s5, s7");
  const auto guessed = inspect_loops(unknown, family("NAVI21"), 32);
  EXPECT_TRUE(main_of(guessed).guessed);
  EXPECT_EQ(main_of(guessed).multiply_cycles, 1);
}

TEST(RdnaModel, CodeWithoutALoopIsOneTurn) {
  const auto loops =
      inspect_loops("BB0:\n\tglobal_load_dwordx2 v[1:2], v0, s[0:1]\n\ts_waitcnt vmcnt(0)\n\ts_endpgm\n",
                    family("NAVI21"), 64);
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_TRUE(loops[0].main && loops[0].product);
  EXPECT_THAT(loops[0].device_loads, ElementsAre(Pair(8, 1)));
  EXPECT_EQ(loops[0].multiply_share(), 0);
}

TEST(RdnaModel, OtherTextsAreRefused) {
  const auto read = [](const char* text) { return tests::message_of([&] { rdna::parse_listing(text); }); };
  EXPECT_THAT(read(""), HasSubstr("must have instructions"));
  EXPECT_THAT(read("a heading\n"), HasSubstr("must have instructions"));
  EXPECT_THAT(read("BB0:\n\tmov_r1 r2, r3\n\tadd_r1 r2, r3\n"), HasSubstr("must be assembly of RDNA"));
  EXPECT_EQ(read(kPrefetched), "no error");
}

TEST(RdnaModel, FamiliesAreKnownByRadvsNames) {
  EXPECT_EQ(rdna::family_of("AMD Radeon RX 7900 XTX (RADV NAVI31)"), &family("NAVI31"));
  EXPECT_EQ(rdna::family_of("AMD Radeon RX 480 (RADV POLARIS10)"), nullptr);
  EXPECT_EQ(rdna::family_of("llvmpipe (LLVM 15.0.6, 256 bits)"), nullptr);
}

TEST(RdnaModel, WavesAreWhatRegistersAndLocalMemoryHaveRoomFor) {
  EXPECT_EQ(rdna::waves_of(family("NAVI31"), 84, 16896, 256, 64), 7);  // seven workgroups of four waves
  EXPECT_EQ(rdna::waves_of(family("NAVI21"), 104, 17408, 256, 64), 4);
  EXPECT_EQ(rdna::waves_of(family("NAVI31"), 24, 0, 64, 64), 16);
  EXPECT_EQ(rdna::waves_of(family("NAVI31"), 24, 32768, 64, 64), 1);  // four workgroups of one wave
  EXPECT_EQ(rdna::waves_of(family("NAVI33"), 128, 0, 512, 64), 4);
  EXPECT_EQ(rdna::waves_of(family("NAVI33"), 248, 37376, 512, 64), 2);
  EXPECT_EQ(rdna::waves_of(family("NAVI31"), 128, 0, 512, 32), 8);
}

TEST(DriverStatistics, AreReadInTheWordsOfEachDriver) {
  hal::Inspection radv;
  radv.subgroup = 64;
  radv.statistics = {{"VGPRs", "", 88},
                     {"Spilled VGPRs", "", 3},
                     {"Code size", "", 400},
                     {"LDS size", "", 1024},
                     {"Scratch size", "Private memory in bytes per subgroup", 640}};
  read_statistics(radv);
  EXPECT_EQ(radv.registers, 88);
  EXPECT_EQ(radv.spilled, 3);
  EXPECT_EQ(radv.code_bytes, 400);
  EXPECT_EQ(radv.local_bytes, 1024);
  EXPECT_EQ(radv.scratch_bytes, 10);

  hal::Inspection nvidia;
  nvidia.subgroup = 32;
  nvidia.statistics = {{"Register Count", "", 40}, {"Binary Size", "", 2000}, {"Stack Size", "", 16}};
  read_statistics(nvidia);
  EXPECT_EQ(nvidia.registers, 40);
  EXPECT_EQ(nvidia.scratch_bytes, 16);
  EXPECT_FALSE(nvidia.spilled.has_value()) << "what a driver does not say is not made up";
}

}  // namespace
}  // namespace meshloom::backends::vulkan
#endif
