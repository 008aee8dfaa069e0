// Checkpoints in pieces: what several ranks write together, any mesh reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "backends/mpi/backend.h"
#include "backends/threads/backend.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/state/save_pieces.h"

namespace meshloom::tests {
namespace {

using backends::threads::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using trainer::Layout;
using trainer::SafetensorsFile;
using trainer::StoredTensor;
using trainer::StoredTensors;
using trainer::TensorInPieces;
using trainer::TensorPiece;
namespace fs = std::filesystem;

// A tensor of consecutive numbers, cut into boxes and these into ranges, in random files of a directory.
struct Cut {
  TensorInPieces tensor;
  std::vector<float> values;
};

Cut random_cut(std::mt19937& random, const std::string& directory) {
  const auto below = [&](std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random);
  };
  Cut cut;
  cut.tensor = {"w", "F32", {}, {}};
  for (std::int64_t d = below(4); d > 0; --d) cut.tensor.shape.push_back(1 + below(7));
  cut.values.resize(static_cast<std::size_t>(kernels::elements(cut.tensor.shape)));
  for (std::size_t i = 0; i < cut.values.size(); ++i) cut.values[i] = static_cast<float>(i);
  // Boxes are a grid.
  std::vector<Layout> boxes{trainer::whole_layout({kernels::DType::f32, cut.tensor.shape})};
  for (std::size_t d = 0; d < cut.tensor.shape.size(); ++d) {
    const std::int64_t at = below(cut.tensor.shape[d]);
    if (at == 0) continue;
    std::vector<Layout> halves;
    for (Layout box : boxes) {
      box.extent[d] = at;
      halves.push_back(box);
      box.begin[d] = at;
      box.extent[d] = cut.tensor.shape[d] - at;
      halves.push_back(box);
    }
    boxes = std::move(halves);
  }
  int number = 0;
  for (const Layout& box : boxes) {
    const std::int64_t all = kernels::elements(box.extent);
    for (std::int64_t first = 0; first < all;) {
      const std::int64_t count = 1 + below(all - first);
      const std::string name = "part-" + std::to_string(number++);
      Layout layout = box;
      layout.range = {first, count};
      std::vector<float> part(static_cast<std::size_t>(count));
      trainer::for_runs(layout, [&](std::int64_t from, std::int64_t to, std::int64_t run) {
        std::copy_n(cut.values.begin() + from, run, part.begin() + to);
      });
      std::vector<StoredTensor> stored{{"w", "F32", {count}}};
      std::ofstream file(directory + "/" + name, std::ios::binary);
      file << trainer::safetensors_header(stored, {});
      file.write(reinterpret_cast<const char*>(part.data()), count * 4);
      cut.tensor.pieces.push_back({name, box.begin, box.extent, first, count});
      first += count;
    }
  }
  std::shuffle(cut.tensor.pieces.begin(), cut.tensor.pieces.end(), random);
  return cut;
}

TEST(StoredTensorsTest, PiecesAreReadAsWholeAndInOtherParts) {
  const Scratch scratch;
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const Cut cut = random_cut(random, scratch.path());
    trainer::check_pieces(cut.tensor, "test");
    const StoredTensors stored(scratch.path(), "all", {cut.tensor});
    const StoredTensor& tensor = *stored.find("w");
    std::vector<float> whole(cut.values.size());
    stored.read(tensor, std::as_writable_bytes(std::span(whole)));
    ASSERT_EQ(whole, cut.values);
    const Scratch other;
    for (const TensorPiece& piece : random_cut(random, other.path()).tensor.pieces) {
      if (piece.begin.size() != cut.tensor.shape.size()) continue;
      Layout part = trainer::whole_layout({kernels::DType::f32, cut.tensor.shape});
      for (std::size_t d = 0; d < piece.begin.size(); ++d) {
        part.begin[d] = piece.begin[d] % cut.tensor.shape[d];
        part.extent[d] = std::min(piece.extent[d], cut.tensor.shape[d] - part.begin[d]);
      }
      const std::int64_t all = kernels::elements(part.extent);
      part.range = {piece.first % all, std::min(piece.count, all - piece.first % all)};
      std::vector<float> want(static_cast<std::size_t>(part.range.count)), found(want.size());
      trainer::for_runs(part, [&](std::int64_t from, std::int64_t to, std::int64_t run) {
        std::copy_n(cut.values.begin() + from, run, want.begin() + to);
      });
      stored.read(tensor, part, std::as_writable_bytes(std::span(found)));
      ASSERT_EQ(found, want);
    }
    // Any piece that is missing, there twice, or moved onto another is refused.
    if (cut.tensor.pieces.size() < 2) continue;
    TensorInPieces missing = cut.tensor, twice = cut.tensor;
    missing.pieces.pop_back();
    twice.pieces.front() = twice.pieces.back();
    EXPECT_THAT(message_of([&] { trainer::check_pieces(missing, "m"); }), HasSubstr("must have all of its"));
    EXPECT_THAT(message_of([&] { trainer::check_pieces(twice, "m"); }), HasSubstr("must not overlap"));
  }
}

TEST(StoredTensorsTest, FilesMustHoldWhatTheManifestSays) {
  const Scratch scratch;
  const auto write = [&](std::vector<StoredTensor> stored) {
    std::ofstream file(scratch.path("part"), std::ios::binary);
    file << trainer::safetensors_header(stored, {});
    file << std::string(static_cast<std::size_t>(stored.back().end), '\0');
  };
  const auto said = [&] {
    return message_of([&] {
      const StoredTensors stored(scratch.path(), "all", {{"w", "F32", {4}, {{"part", {0}, {4}, 0, 4}}}});
    });
  };
  write({{"w", "F32", {2, 2}}});
  EXPECT_EQ(said(), "no error");
  write({{"v", "F32", {4}}});
  EXPECT_THAT(said(), HasSubstr("must be there"));
  write({{"w", "I32", {4}}});
  EXPECT_THAT(said(), HasSubstr("the 4 elements of F32 that the manifest says; found 4 of I32"));
  write({{"w", "F32", {5}}});
  EXPECT_THAT(said(), HasSubstr("found 5 of F32"));
  write({{"w", "F32", {4}}, {"x", "F32", {1}}});
  EXPECT_THAT(said(), HasSubstr("must hold the 1 pieces that the manifest says; found 2 tensors"));
}

TEST(Manifest, OfPiecesIsReadAgainAndChecked) {
  const std::string good = read_text(MESHLOOM_SOURCE_DIR "/tests/fuzz/seeds/manifest/pieces.json");
  const trainer::Manifest manifest = trainer::parse_manifest(good, "m");
  EXPECT_EQ(trainer::to_json(manifest), good);
  const auto said = [&](const std::function<void(trainer::Manifest&)>& edit) {
    trainer::Manifest other = manifest;
    edit(other);
    return message_of([&] { trainer::parse_manifest(trainer::to_json(other), "m"); });
  };
  EXPECT_EQ(said([](auto&) {}), "no error");
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces.pop_back(); }),
              HasSubstr("must have all of its 24 elements"));
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces[1].first = 1; }), HasSubstr("must not overlap"));
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces[0].extent[1] = 4; }), HasSubstr("must not overlap"));
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces[0].begin[0] = 1; }), HasSubstr("must lie in its shape"));
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces[0].count = 13; }),
              HasSubstr("must have elements of its box"));
  EXPECT_THAT(said([](auto& m) { m.model.push_back(m.model[0]); }), HasSubstr("must be listed once"));
  EXPECT_THAT(said([](auto& m) { m.files.erase(m.files.begin()); }),
              HasSubstr("the manifest must list the file"));
  EXPECT_THAT(said([](auto& m) { m.model[0].pieces[0].file = "../x"; }), HasSubstr("own directory"));
  EXPECT_THAT(said([](auto& m) { m.model[0].shape = {1LL << 40, 1LL << 40}; }), HasSubstr("below 2^63"));
}

class SharedCheckpoint : public testing::Test {
 protected:
  SharedCheckpoint() { scratch_.file("text", sample_text(20000)); }
  std::string train(const std::string& name, const std::string& options) const {
    return "train tiny --device cpu --batch 8 --set accumulation=2 --sample 0 --quiet --set eval_batches=0 "
           "--set learner.schedule.warmup_steps=1 --set learner.schedule.total_steps=3 "
           "--set learner.schedule.final_fraction=0 --data " +
           scratch_.path("text") + " --out " + scratch_.path(name) + " " + options;
  }
  void run(const std::string& name, const std::string& options) const {
    const Outcome outcome = meshloom(train(name, options));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy(scratch_.path(from), scratch_.path(to), fs::copy_options::recursive);
  }
  std::string exported(const std::string& name) const {
    const std::string to = scratch_.path("hf-" + name);
    const Outcome outcome = meshloom("export --checkpoint " + scratch_.path(name) + " --out " + to);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_text(to + "/model.safetensors");
  }
  Scratch scratch_;
};

// From step 3 on the learning rate is zero: what was read is what is saved again.
TEST_F(SharedCheckpoint, IsReadByAnyMeshAndByOneRank) {
  run("four", "--steps 3 --mesh fsdp=4");
  ASSERT_TRUE(fs::exists(scratch_.path("four/step-00000003/model-00004-of-00004.safetensors")));
  ASSERT_FALSE(fs::exists(scratch_.path("four/step-00000003/model.safetensors")));
  for (const char* name : {"two", "one", "stages"}) copy("four", name);
  run("two", "--steps 4 --resume --allow-rounding --mesh data=2,fsdp=2");
  run("one", "--steps 4 --resume --allow-rounding");
  run("stages", "--steps 4 --resume --allow-rounding --mesh pipeline=2,model=2");
  ASSERT_TRUE(fs::exists(scratch_.path("one/step-00000004/model.safetensors")));
  copy("one", "again");
  run("again", "--steps 5 --resume --allow-rounding --mesh fsdp=4");
  const std::string want = exported("four");
  EXPECT_GT(want.size(), 100000u);
  EXPECT_TRUE(exported("two") == want);
  EXPECT_TRUE(exported("one") == want);
  EXPECT_TRUE(exported("stages") == want);
  EXPECT_TRUE(exported("again") == want);
  const Outcome shown = meshloom("checkpoint " + scratch_.path("two"));
  EXPECT_EQ(shown.code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr("every checksum is right"));
  EXPECT_EQ(meshloom("generate --prompt ships --tokens 2 --checkpoint " + scratch_.path("two")).code, 0);
}

TEST_F(SharedCheckpoint, ADamagedPieceIsFoundAndTheOneBeforeIsTaken) {
  run("run", "--steps 4 --set checkpoint_every=2 --mesh fsdp=2");
  const std::string file = scratch_.path("run/step-00000004/optimizer-00002-of-00002.safetensors");
  std::string text = read_text(file);
  text.at(text.size() / 2) ^= 4;
  std::ofstream(file, std::ios::binary) << text;
  const Outcome outcome = meshloom(train("run", "--steps 5 --resume --mesh fsdp=2 --set checkpoint_every=2"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the checkpoint of step 4 is not whole"),
                                 HasSubstr("optimizer-00002-of-00002"), HasSubstr("checksum")));
  fs::remove(scratch_.path("run/step-00000005/model-00001-of-00002.safetensors"));
  EXPECT_THAT(meshloom("checkpoint " + scratch_.path("run")).out,
              HasSubstr("model-00001-of-00002.safetensors"));
}

TEST(SharedDirectory, IsProbed) {
  const Scratch one, other;
  for (const bool same : {true, false})
    run_ranks(3, [&](std::unique_ptr<hal::Transport> transport) {
      const std::string own = transport->rank() == 2 && !same ? other.path() : one.path();
      EXPECT_EQ(trainer::rank_without_directory(*transport, own, 60), same ? -1 : 2);
    });
  EXPECT_TRUE(fs::is_empty(one.path()));
}

// Rank 1 has another directory: rank 0 gathers what it saves.
TEST_F(SharedCheckpoint, RankZeroGathersWhereHostsShareNoDirectory) {
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const auto over = [&](const std::string& options) {
    return meshloom(train("first", options) + " : -n 1 " MESHLOOM_BINARY " " + train("second", options),
                    "timeout ${MESHLOOM_TEST_SECONDS:-100} mpirun --allow-run-as-root --oversubscribe "
                    "--bind-to none -n 1");
  };
  const Outcome outcome = over("--steps 2 --mesh fsdp=2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is another directory on rank 1"));
  run("alone", "--steps 2 --mesh fsdp=2");
  EXPECT_TRUE(exported("first") == exported("alone"));
  const Outcome resumed = over("--steps 3 --mesh fsdp=2 --resume");
  EXPECT_NE(resumed.code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("continues from a directory that all hosts share"));
  // Frozen weights that are stored in 16 bits.
  const std::string frozen =
      "--steps 2 --mesh model=2 --set dtype=bf16 --modify "
      "'AddParameterGroup{where=\"**.{q,k}_proj.*\" freeze=true}'";
  for (const char* name : {"first", "second", "hf-first"}) fs::remove_all(scratch_.path(name));
  const Outcome narrow = over(frozen);
  ASSERT_EQ(narrow.code, 0) << narrow.err;
  run("narrow", frozen);
  EXPECT_TRUE(exported("first") == exported("narrow"));
}

}  // namespace
}  // namespace meshloom::tests
