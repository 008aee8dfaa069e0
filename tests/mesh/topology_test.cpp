// Places of ranks in a mesh, and which part of a value each holds.
#include "trainer/mesh/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/message_of.h"
#include "trainer/mesh/layout.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using trainer::AxisName;
using trainer::AxisSet;
using trainer::Layout;
using trainer::Range;
using trainer::Topology;

TEST(TopologyOfMesh, NumbersRanksWithTheLastAxisFastest) {
  const std::vector<trainer::MeshAxis> mesh{{"model", 2}, {"data", 3}};
  const Topology rank(mesh, 3);  // data 1, model 1
  EXPECT_EQ(rank.ranks(), 6);
  EXPECT_EQ(rank.text(), "data=3,model=2");
  EXPECT_EQ(rank.place(AxisName::data), 1);
  EXPECT_EQ(rank.place(AxisName::model), 1);
  EXPECT_THAT(rank.group(AxisName::data), ElementsAre(1, 3, 5));
  EXPECT_THAT(rank.group(AxisName::model), ElementsAre(2, 3));
  EXPECT_THAT(rank.group(AxisName::seq), ElementsAre(3));
  EXPECT_EQ(Topology().text(), "1 rank");
}

TEST(TopologyOfMesh, EveryRankHasItsPlaceInItsGroups) {
  const std::vector<trainer::MeshAxis> mesh{{"data", 2}, {"fsdp", 3}, {"model", 2}};
  for (const char* names : {"data", "data,fsdp", "fsdp,model", "data,fsdp,model"})
    for (int rank = 0; rank < 12; ++rank) {
      const Topology own(mesh, rank);
      const AxisSet axes = trainer::axes_from_string(names);
      EXPECT_EQ(to_string(axes), names);
      const std::vector<int> group = own.group(axes);
      ASSERT_EQ(static_cast<int>(group.size()), own.size(axes));
      EXPECT_EQ(group[static_cast<std::size_t>(own.place(axes))], rank);
    }
}

TEST(TopologyOfMesh, RefusesWhatIsNoMesh) {
  const auto message = [](std::vector<trainer::MeshAxis> axes, int rank = 0) {
    return message_of([&] { Topology(axes, rank); });
  };
  EXPECT_THAT(message({{"modle", 2}}), HasSubstr("did you mean 'model'"));
  EXPECT_THAT(message({{"seq", 1}, {"seq", 1}}), HasSubstr("once"));
  EXPECT_THAT(message({{"seq", 0}}), HasSubstr("at least 1"));
  EXPECT_THAT(message({{"seq", 1 << 20}, {"data", 1 << 20}}), HasSubstr("fewer than 2^31"));
  EXPECT_THAT(message({{"data", 2}}, 2), HasSubstr("one of 2"));
  EXPECT_THAT(message_of([] { trainer::axes_from_string("data,fdsp"); }), HasSubstr("'fsdp'"));
}

TEST(Parts, CoverTheRangeInOrder) {
  for (const std::int64_t count : {0, 1, 7, 64})
    for (const std::int64_t places : {1, 3, 8}) {
      std::int64_t at = 5;
      for (std::int64_t place = 0; place < places; ++place) {
        const Range part = trainer::part_of({5, count}, places, place);
        EXPECT_EQ(part.first, at);
        EXPECT_LE(std::abs(part.count * places - count), places);
        at += part.count;
      }
      EXPECT_EQ(at, 5 + count);
    }
}

// Every element of a random part, one by one.
std::vector<std::int64_t> elements_of(const Layout& layout) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = layout.range.first; i < layout.range.first + layout.range.count; ++i) {
    std::int64_t rest = i, whole = 0, stride = 1;
    for (std::size_t d = layout.whole.shape.size(); d-- > 0;) {
      std::int64_t place = layout.begin[d] + rest % layout.extent[d];
      if (static_cast<int>(d) == layout.two_runs && place >= layout.begin[d] + layout.extent[d] / 2)
        place += layout.second - layout.begin[d] - layout.extent[d] / 2;
      whole += place * stride;
      rest /= layout.extent[d];
      stride *= layout.whole.shape[d];
    }
    places.push_back(whole);
  }
  return places;
}

TEST(Layouts, RunsAreThePartsElements) {
  std::mt19937 random(3);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 500; ++round) {
    Layout layout = trainer::whole_layout(
        {kernels::DType::f32, kernels::Shape(static_cast<std::size_t>(1 + below(4)), 1)});
    for (std::size_t d = 0; d < layout.begin.size(); ++d) {
      layout.whole.shape[d] = 1 + below(5);
      layout.begin[d] = round % 3 == 0 ? 0 : below(layout.whole.shape[d]);
      layout.extent[d] =
          round % 3 == 0 ? layout.whole.shape[d] : 1 + below(layout.whole.shape[d] - layout.begin[d]);
    }
    if (round % 3 == 1) {  // two runs along one dimension
      const auto d = static_cast<std::size_t>(below(static_cast<std::int64_t>(layout.begin.size())));
      const std::int64_t length = 1 + below(3), between = below(3);
      layout.two_runs = static_cast<int>(d);
      layout.begin[d] = below(2);
      layout.extent[d] = 2 * length;
      layout.second = layout.begin[d] + length + between;
      layout.whole.shape[d] = layout.second + length + 1;
    }
    const std::int64_t box = kernels::elements(layout.extent);
    layout.range.first = below(box);
    layout.range.count = 1 + below(box - layout.range.first);
    std::vector<std::int64_t> seen;
    int runs = 0;
    trainer::for_runs(layout, [&](std::int64_t whole, std::int64_t part, std::int64_t count) {
      ++runs;
      EXPECT_EQ(part, static_cast<std::int64_t>(seen.size()));
      for (std::int64_t i = 0; i < count; ++i) seen.push_back(whole + i);
    });
    EXPECT_EQ(seen, elements_of(layout));
    if (layout.extent == layout.whole.shape) {
      EXPECT_EQ(runs, 1);
    }
    EXPECT_EQ(layout.is_whole(), layout.range.count == layout.whole.elements());
  }
}

}  // namespace
}  // namespace meshloom::tests
