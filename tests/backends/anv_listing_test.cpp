// The reader of what Mesa's ANV prints, on short listings as it prints them.
#ifdef MESHLOOM_HAS_VULKAN
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "backends/simt/host/launch.h"
#include "backends/vulkan/device/enumerate.h"
#include "backends/vulkan/inspect/anv_listing.h"
#include "backends/vulkan/inspect/statistics.h"
#include "tests/message_of.h"

namespace meshloom::backends::vulkan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using tests::message_of;

const simt::isa::Xe& dg2() { return *simt::isa::xe_of("dg2"); }
const simt::isa::Xe& bmg() { return *simt::isa::xe_of("bmg"); }

const hal::LoopInspection& main_of(const std::vector<hal::LoopInspection>& loops) {
  for (const hal::LoopInspection& loop : loops)
    if (loop.main) return loop;
  throw std::runtime_error("no main loop");
}

std::string with(std::string text, const std::string& part, const std::string& instead) {
  const std::size_t at = text.find(part);
  if (at == std::string::npos) throw std::runtime_error(part);
  return text.replace(at, part.size(), instead);
}

// A tile's copy in a loop whose number of turns is not in the code, and its products in one of four turns.
constexpr const char* kTile =
    R"(mov(8)          g30<1>D         0D                              { align1 WE_all 1Q };

LABEL2:
cmp.ge.f0.0(8)  null<1>D        g8<8,8,1>D      g57.5<0,1,0>D   { align1 1Q };
(+f0.0) break(8) JIP:  LABEL0         UIP:  LABEL0              { align1 1Q };
sync nop(1)                     null<0,1,0>UB                   { align1 WE_all 1N $9.src };
send(8)         g12UD           g6UD            nullUD          0x02443500                0x00000000
                ugm MsgDesc: ( load, a32, d32, V4, L1STATE_L3MOCS dst_len = 4, src0_len = 1, src1_len = 0 bti )  BTI 0  base_offset 0  { align1 1Q $4 };
send(1)         g8UD            g80UD           nullUD          0x4240e500                a0.2<0>UD
                ugm MsgDesc: ( load, a32, d32, V32, transpose, L1STATE_L3MOCS dst_len = 4, src0_len = 1, ss )  src1_len = 0 ex_bso surface_state_index 0  { align1 WE_all 1N $6 };
mov(8)          g30<1>D         0D                              { align1 WE_all 1Q };

LABEL1:
send(8)         g32UD           g4UD            nullUD          0x02443500                0x00000000
                slm MsgDesc: ( load, a32, d32, V4, L1UC_L3C dst_len = 4, src0_len = 1, src1_len = 0 flat )  base_offset 0  { align1 1Q $5 };
sync nop(1)                     null<0,1,0>UB                   { align1 WE_all 1N $5.dst };
mad(8)          g24<1>F         g24<8,8,1>F     g32<8,8,1>F     g33<1,1,1>F { align1 1Q };
mad(16)         g26<1>F         g26<8,8,1>F     g32<8,8,1>F     g34<1,1,1>F { align1 1H };
mad(8)          g85<1>UD        0x0360UW        g85<8,8,1>UW    0x0004UW { align1 WE_all 1Q I@6 };
add(8)          g30<1>D         g30<8,8,1>D     1D              { align1 WE_all 1Q };
cmp.ge.f0.0(8)  null<1>D        g30<8,8,1>D     4D              { align1 1Q I@1 };
(+f0.0) break(8) JIP:  LABEL3         UIP:  LABEL3              { align1 1Q };

LABEL3:
while(8)        JIP:  LABEL1                                    { align1 1Q };
send(8)         nullUD          g106UD          g12UD           0x02043504                0x00000100
                slm MsgDesc: ( store, a32, d32, V4, L1UC_L3WB dst_len = 0, src0_len = 1, src1_len = 4 flat )  base_offset 0  { align1 1Q $4.dst };
send(1)         nullUD          g3UD            nullUD          0x02000004                0x00000000
                gateway MsgDesc: (barrier msg)  mlen 1 ex_mlen 0 rlen 0 { align1 WE_all 1Q $7 };
sync bar(8)                     null<0,1,0>UB                   { align1 WE_all 1Q };
add(8)          g8<1>D          g8<8,8,1>D      16D             { align1 1Q };

LABEL0:
while(8)        JIP:  LABEL2                                    { align1 1Q };
send(8)         nullUD          g127UD          nullUD          0x02000000                0x00000000
                gateway MsgDesc: (open)  mlen 1 ex_mlen 0 rlen 0 { align1 WE_all 1Q A@1 EOT };
)";

TEST(AnvListing, ALoopIsCounted) {
  const auto loops = anv::inspect_loops(kTile, dg2());
  ASSERT_EQ(loops.size(), 2u);
  const hal::LoopInspection& main = main_of(loops);
  EXPECT_EQ(main.label, "LABEL2");
  EXPECT_FALSE(main.guessed) << "the loop inside counts to 4";
  EXPECT_EQ(loops[1].label, "LABEL1");
  EXPECT_TRUE(loops[1].product);
  EXPECT_EQ(loops[1].multiply_cycles, 1 + 2) << "a product of integers is an address";
  EXPECT_EQ(loops[1].issue_cycles, 2 + 1 + 2 + 5) << "16 invocations take two cycles of an engine of 8";
  EXPECT_EQ(main.multiply_cycles, 4 * 3);
  EXPECT_THAT(main.device_loads, ElementsAre(Pair(16, 1)));
  EXPECT_THAT(main.local_loads, ElementsAre(Pair(16, 4)));
  EXPECT_EQ(main.scratch_accesses, 1);
  EXPECT_EQ(main.waits, 1);
  EXPECT_EQ(main.exposed_waits, 0) << "the products stand between the load and its use";
  EXPECT_FALSE(main.local_bound().has_value()) << "what is not known is not said";
  // An engine of 16 lanes takes each in one cycle.
  EXPECT_EQ(anv::inspect_loops(kTile, bmg())[1].multiply_cycles, 2);
}

TEST(AnvListing, ALoopIsNotCountedByTheCounterOfOneInside) {
  std::string nested = with(
      kTile, "LABEL2:\n", "mov(8)          g31<1>D         0D              { align1 WE_all 1Q };\nLABEL2:\n");
  nested = with(
      nested,
      "mov(8)          g30<1>D         0D                              { align1 WE_all 1Q };\n\nLABEL1:\n",
      "mov(8)          g31<1>D         0D              { align1 WE_all 1Q };\n\nLABEL4:\n"
      "mov(8)          g30<1>D         0D              { align1 WE_all 1Q };\n\nLABEL1:\n");
  nested = with(nested, "while(8)        JIP:  LABEL1                                    { align1 1Q };\n",
                "while(8)        JIP:  LABEL1            { align1 1Q };\n"
                "add(8)          g31<1>D         g31<8,8,1>D     32D             { align1 WE_all 1Q };\n"
                "cmp.ge.f0.0(8)  null<1>D        g31<8,8,1>D     64D             { align1 1Q I@1 };\n"
                "(-f0.0) while(8) JIP:  LABEL4           { align1 1Q };\n");
  const auto loops = anv::inspect_loops(nested, dg2());
  ASSERT_EQ(loops.size(), 3u);
  EXPECT_FALSE(main_of(loops).guessed);
  EXPECT_EQ(main_of(loops).multiply_cycles, 2 * 4 * 3);
}

TEST(AnvListing, OnlyIntegersCount) {
  for (const char* limit : {"0x00000004UD", "4W"})
    EXPECT_FALSE(
        main_of(anv::inspect_loops(with(kTile, "  4D ", std::string("  ") + limit + " "), dg2())).guessed);
  for (const char* limit : {"0x40800000F", "0xff61b1e6F", "g4<8,8,1>D"})
    EXPECT_TRUE(
        main_of(anv::inspect_loops(with(kTile, "  4D ", std::string("  ") + limit + " "), dg2())).guessed)
        << limit;
}

TEST(AnvListing, AnAddressIsNoCounter) {
  const std::string address = with(
      kTile, "LABEL1:\n", "mov(1)          g30<1>UD        0x00000940UD    { align1 WE_all 1N };\nLABEL1:\n");
  EXPECT_EQ(main_of(anv::inspect_loops(address, dg2())).multiply_cycles, 4 * 3);
}

// The negative controls: waits that stand where the load does.
TEST(AnvListing, AWaitBeforeTheProductsIsExposed) {
  EXPECT_EQ(main_of(anv::inspect_loops(with(kTile, "1N $6 }", "1N $4.dst $6 }"), dg2())).exposed_waits, 1);
  const std::string all =
      with(kTile, "LABEL1:\n", "sync allwr(1) null<0,1,0>UB { align1 WE_all 1N };\nLABEL1:\n");
  EXPECT_EQ(main_of(anv::inspect_loops(all, dg2())).exposed_waits, 1);
  // A message waits for the one that had its scoreboard.
  EXPECT_EQ(main_of(anv::inspect_loops(with(kTile, "1N $6 }", "1N $4 }"), dg2())).exposed_waits, 1);
  // The source of a load has been read long before it comes.
  EXPECT_EQ(main_of(anv::inspect_loops(with(kTile, "1N $6 }", "1N $4.src $6 }"), dg2())).exposed_waits, 0);
}

TEST(AnvListing, ProductsOfMatricesTakeTheTimeOfTheirUnit) {
  const char* listing = R"(
LABEL1:
send(8)         g32UD           g4UD            nullUD          0x02443500                0x00000000
                slm MsgDesc: ( load, a32, d32, V4, L1UC_L3C dst_len = 4, src0_len = 1, src1_len = 0 flat )  base_offset 0  { align1 1Q $5 };
dpas.8x8(8)     g24<1>F         g8<1,1,0>F      g32<1,1,0>HF    g16<1,1,0>HF { align1 WE_all 1Q @3 $9 };
dpas.8x4(8)     g48<1>F         g8<1,1,0>F      g32<1,1,0>HF    g16<1,1,0>HF { align1 WE_all 1Q $12 };
(+f0.0) while(8) JIP:  LABEL1                                   { align1 1Q };
)";
  const hal::LoopInspection loop = main_of(anv::inspect_loops(listing, dg2()));
  EXPECT_EQ(loop.multiply_cycles, 2 * (8 + 4));
  EXPECT_EQ(loop.issue_cycles, 2 * (8 + 4)) << "other instructions issue beside them";
  EXPECT_EQ(loop.instructions, 4);
}

TEST(AnvListing, OneOfTwoWaysIsTaken) {
  const char* listing = R"(
LABEL1:
mad(8)          g24<1>F         g24<8,8,1>F     g32<8,8,1>F     g33<1,1,1>F { align1 1Q };
(+f0.0) if(8)   JIP:  LABEL4          UIP:  LABEL3              { align1 1Q };
mov(8)          g25<1>D         g26<8,8,1>D                     { align1 1Q };
else(8)         JIP:  LABEL3          UIP:  LABEL3              { align1 1Q };

LABEL4:
mov(8)          g27<1>D         g26<8,8,1>D                     { align1 1Q };
mov(8)          g28<1>D         g26<8,8,1>D                     { align1 1Q };
mov(8)          g29<1>D         g26<8,8,1>D                     { align1 1Q };

LABEL3:
endif(8)        JIP:  LABEL2                                    { align1 1Q };
while(8)        JIP:  LABEL1                                    { align1 1Q };
)";
  EXPECT_EQ(main_of(anv::inspect_loops(listing, dg2())).issue_cycles, 1 + 1 + 3 + 1);
}

TEST(AnvListing, MessagesOfEveryFormAreRead) {
  const auto loop = [](const std::string& what) {
    return anv::inspect_loops("LABEL0:\nsend(16)  g2UD  g4UD  nullUD  0x04403500  0x00000000\n   " + what +
                                  " { align1 1H $3 };\n",
                              bmg())
        .at(0);
  };
  EXPECT_THAT(
      loop("ugm MsgDesc: ( load, a64, d16u32, V1, L1C_L3C dst_len = 1, src0_len = 2, src1_len = 0 flat )")
          .device_loads,
      ElementsAre(Pair(2, 1)));
  EXPECT_THAT(
      loop("ugm MsgDesc: ( load, a32, d64, V2, L1C_L3C dst_len = 8, src0_len = 1, ss )").scratch_accesses, 1);
  EXPECT_THAT(loop("ugm MsgDesc: ( load, a64, d32, V8, transpose, L1C_L3C dst_len = 1, src0_len = 1, "
                   "src1_len = 0 flat )")
                  .device_loads,
              ElementsAre())
      << "one for the whole subgroup is a scalar's";
  EXPECT_THAT(
      loop("ugm MsgDesc: ( atomic_add, a32, d32, V1, L1C_L3C dst_len = 1, src0_len = 1, src1_len = 1 bti )")
          .device_loads,
      ElementsAre());
  EXPECT_THAT(loop("ugm MsgDesc: ( fence, a32, local, none, normal_routing dst_len = 1, src0_len = 1, "
                   "src1_len = 0 flat )")
                  .instructions,
              1);
}

TEST(AnvListing, OtherTextsAreRefused) {
  const auto read = [](const char* text) { return message_of([&] { anv::parse_listing(text, 8); }); };
  EXPECT_THAT(read(""), HasSubstr("must have instructions"));
  EXPECT_THAT(read("BB0:\n\tv_mov_b32 v1, v2\n\tv_add_f32 v1, v2, v3\n"),
              HasSubstr("must be assembly of Xe"));
  // What is cut off anywhere is read or refused.
  const std::string tile = kTile;
  for (std::size_t end = 0; end <= tile.size(); ++end)
    message_of([&] { anv::inspect_loops(tile.substr(0, end), dg2()); });
}

TEST(AnvListing, FamiliesAreKnownByAnvsNames) {
  EXPECT_EQ(anv::family_of("Intel(R) Arc(tm) A770 Graphics (DG2)"), &dg2());
  EXPECT_EQ(anv::family_of("Intel(R) Arc(tm) B580 Graphics (BMG G21)"), &bmg());
  EXPECT_EQ(anv::family_of("Intel(R) UHD Graphics 630 (CFL GT2)"), nullptr);
  EXPECT_EQ(anv::family_of("AMD Radeon RX 7900 XTX (RADV NAVI31)"), nullptr);
}

TEST(AnvListing, ThreadsAreWhatLocalMemoryHasRoomFor) {
  EXPECT_EQ(simt::isa::xe_waves_of(dg2(), 128, 16896, 256, 8), 8);
  EXPECT_EQ(simt::isa::xe_waves_of(dg2(), 256, 16896, 256, 8), 4) << "each has as many registers as two";
  EXPECT_EQ(simt::isa::xe_waves_of(dg2(), 128, 65536, 128, 8), 2)
      << "two workgroups of 16 threads on 16 engines";
  EXPECT_EQ(simt::isa::xe_waves_of(bmg(), 128, 0, 64, 16), 8);
}

TEST(AnvListing, StatisticsAreReadInItsWords) {
  hal::Inspection anv;
  anv.subgroup = 8;
  anv.statistics = {{"Max live registers", "", 183},
                    {"Spills", "", 226},
                    {"Fills", "", 95},
                    {"Code size", "", 141312},
                    {"Workgroup Memory Size", "", 16896},
                    {"Scratch Memory Size", "", 32}};
  read_statistics(anv);
  EXPECT_EQ(anv.registers, 183);
  EXPECT_EQ(anv.spilled, 226);
  EXPECT_EQ(anv.code_bytes, 141312);
  EXPECT_EQ(anv.local_bytes, 16896);
  EXPECT_EQ(anv.scratch_bytes, 32);
}

// A card that scripts/intel-shim.c makes up is one that computes nothing; a real one computes.
TEST(NullHardware, IsWhatAShimStandsFor) {
  const std::string name = "Intel(R) Arc(tm) A770 Graphics (DG2)";
  unsetenv("INTEL_SHIM_FAMILY");
  EXPECT_FALSE(is_null_hardware(name, VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA));
  setenv("INTEL_SHIM_FAMILY", "dg2", 1);
  EXPECT_TRUE(is_null_hardware(name, VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA));
  EXPECT_FALSE(is_null_hardware("llvmpipe", VK_DRIVER_ID_MESA_LLVMPIPE));
  unsetenv("INTEL_SHIM_FAMILY");
}

TEST(RolledSums, AreForAnvAndForWhoAsks) {
  hal::DeviceInfo target;
  target.backend = "vulkan";
  target.driver = "Intel open-source Mesa driver Mesa 26.1.6-1~bpo13+1";
  EXPECT_TRUE(simt::has_rolled_sums({}, target));
  EXPECT_FALSE(simt::has_rolled_sums({{"rolled", 0}}, target));
  target.driver = "radv Mesa 26.1.6-1~bpo13+1";
  EXPECT_FALSE(simt::has_rolled_sums({}, target));
  EXPECT_TRUE(simt::has_rolled_sums({{"rolled", 1}}, target));
}

}  // namespace
}  // namespace meshloom::backends::vulkan
#endif
