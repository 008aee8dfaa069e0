// Every axis, every pair of axes and some triples, schedules and models: over ranks as on one rank. MESHLOOM_MESH_FULL=1 runs all of
// it, over more steps, and prints a table.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/mpi/backend.h"
#include "tests/mesh/train_over_ranks.h"

namespace meshloom::tests {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

// Of a safetensors file, read without the program's own reader.
Tensors tensors_of(const std::string& file) {
  Tensors tensors;
  std::uint64_t header = 0;
  if (file.size() < sizeof header) return tensors;
  std::memcpy(&header, file.data(), sizeof header);
  const char* const data = file.data() + sizeof header + header;
  const nlohmann::json listed = nlohmann::json::parse(file.substr(sizeof header, header));
  for (const auto& [name, tensor] : listed.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(tensor.at("dtype"), "F32") << name;
    const auto begin = tensor.at("data_offsets").at(0).get<std::size_t>(),
               end = tensor.at("data_offsets").at(1).get<std::size_t>();
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), data + begin, end - begin);
  }
  return tensors;
}

// Of a checkpoint, put together from the pieces that its manifest lists.
Tensors tensors_of_checkpoint(const std::string& folder) {
  std::map<std::string, Tensors> files;
  const auto file = [&](const std::string& name) -> Tensors& {
    if (!files.count(name)) {
      std::ifstream stream(folder + "/" + name, std::ios::binary);
      files[name] = tensors_of({std::istreambuf_iterator<char>(stream), {}});
    }
    return files[name];
  };
  std::ifstream stream(folder + "/manifest.json");
  if (!stream) return {};
  const nlohmann::json manifest = nlohmann::json::parse(stream);
  if (fs::exists(folder + "/model.safetensors")) return file("model.safetensors");
  Tensors whole;
  for (const nlohmann::json& tensor : manifest.at("model")) {
    const std::string name = tensor.at("name");
    const auto shape = tensor.at("shape").get<std::vector<std::size_t>>();
    std::size_t elements = 1;
    for (const std::size_t size : shape) elements *= size;
    std::vector<float>& values = whole[name];
    values.assign(elements, std::nanf(""));
    for (const nlohmann::json& piece : tensor.at("pieces")) {
      const auto begin = piece.at("begin").get<std::vector<std::size_t>>(),
                 extent = piece.at("extent").get<std::vector<std::size_t>>();
      const auto first = piece.at("first").get<std::size_t>(), count = piece.at("count").get<std::size_t>();
      const std::vector<float>& part = file(piece.at("file")).at(name);
      for (std::size_t i = 0; i < count; ++i) {
        std::size_t in_box = first + i, at = 0, stride = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
          at += (begin[d] + in_box % extent[d]) * stride;
          in_box /= extent[d];
          stride *= shape[d];
        }
        values.at(at) = part.at(i);
      }
    }
  }
  return whole;
}

struct Row {
  std::string mesh;
  std::string recipe = {};  // more options
  double tolerance = 1e-5;  // of a loss
  bool always = false;      // also without MESHLOOM_MESH_FULL
  bool gradients = true;    // compared after a step of SGD
};

class MeshTable : public TrainOverRanks {
 protected:
  void SetUp() override {
    TrainOverRanks::SetUp();
    std::ofstream documents(folder_ + "/text.txt", std::ios::app);
    for (int i = 0; i < 200; ++i) documents << "a document of number " << i << "\n\n";
  }

  static bool full() { return std::getenv("MESHLOOM_MESH_FULL") != nullptr; }

  // The parameters after one step of plain SGD are those before it less the gradient, times a rate that makes their own
  // rounding small beside it.
  static constexpr double kRate = 1000;
  static std::string one_step(const std::string& recipe, double rate) {
    return fmt::format(
        "--steps 1 --set eval_batches=0 --replace 'AdamW=Sgd{{momentum=0}}' --set learner.clip_norm=0 --set "
        "learner.schedule=ConstantSchedule{{}} --set learner.peak_learning_rate={} {}",
        rate, recipe);
  }

  Tensors after_one_step(const std::string& name, const std::string& options) {
    const Result result = train(name, options);
    EXPECT_EQ(result.code, 0) << options << "\n" << result.said;
    return tensors_of_checkpoint(folder_ + "/" + name + "/step-00000001");
  }

  // The largest difference of a tensor's gradient, in units of its largest entry.
  double gradient_difference(const std::string& name, const Row& row, const std::string& recipe) {
    const std::string key = "g:" + recipe;
    if (!start_.count(key)) {
      start_[key] = after_one_step(fmt::format("start{}", start_.size()), one_step(recipe, 1e-30));
      single_[key] = after_one_step(fmt::format("single{}", single_.size()), one_step(recipe, kRate));
    }
    const Tensors &start = start_[key], &single = single_[key],
                  over = after_one_step(name + "-g", one_step(recipe + " --mesh " + row.mesh, kRate));
    EXPECT_EQ(over.size(), single.size());
    double worst = 0;
    int with_gradient = 0;
    for (const auto& [tensor, values] : single) {
      if (!over.count(tensor) || over.at(tensor).size() != values.size()) return HUGE_VAL;
      double largest = 1e-30, apart = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(double{values[i]} - double{start.at(tensor)[i]}));
        const double here = std::abs(double{values[i]} - double{over.at(tensor)[i]});
        apart = std::isfinite(here) ? std::max(apart, here) : HUGE_VAL;
      }
      with_gradient += largest > 1e-6;
      worst = std::max(worst, apart / largest);
    }
    EXPECT_GT(with_gradient, 10);
    return worst;
  }

  double loss_difference(const std::string& name, const Row& row, const std::string& recipe) {
    const std::string steps = fmt::format("--steps {} ", full() ? 20 : 6);
    std::string& one = one_[recipe];
    if (one.empty()) {
      one = fmt::format("one{}", one_.size());
      const Result alone = train(one, steps + recipe);
      EXPECT_EQ(alone.code, 0) << recipe << "\n" << alone.said;
    }
    const Result over = train(name, steps + recipe + " --mesh " + row.mesh);
    EXPECT_EQ(over.code, 0) << row.mesh << " " << recipe << "\n" << over.said;
    const std::vector<double> a = losses(name), b = losses(one);
    if (a.size() != b.size() || a.empty()) return HUGE_VAL;
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  }

  void check(const std::vector<Row>& rows) {
    int number = 0;
    for (const Row& row : rows) {
      if (!full() && !row.always) continue;
      SCOPED_TRACE(row.mesh + " " + row.recipe);
      // As many micro-batches as stages at least.
      const bool piped = row.mesh.find("pipeline") != std::string::npos;
      const int micro_batches = row.mesh.find("pipeline=4") != std::string::npos ? 4 : piped ? 2 : 1;
      std::string recipe = fmt::format("--set model.decoder.stack.num_layers=4 --set accumulation={} {}",
                                       micro_batches, row.recipe);
      if (row.mesh.find("expert") != std::string::npos && recipe.find("MoE") == std::string::npos)
        recipe += " --replace 'FeedForward=MoE{num_experts=4}'";
      const std::string name = fmt::format("row{}", number++);
      const double loss = loss_difference(name, row, recipe),
                   gradient = row.gradients ? gradient_difference(name, row, recipe) : 0;
      if (full())
        fmt::print("{:30} {:60} loss {:.1e}  gradient {}\n", row.mesh, row.recipe, loss,
                   row.gradients ? fmt::format("{:.1e}", gradient) : "-");
      std::fflush(stdout);
      EXPECT_LE(loss, row.tolerance);
      EXPECT_LE(gradient, row.tolerance);
      fs::remove_all(folder_ + "/" + name);
      fs::remove_all(folder_ + "/" + name + "-g");
    }
  }

 private:
  std::map<std::string, std::string> one_;  // by recipe: the run of one rank
  std::map<std::string, Tensors> start_, single_;
};

const std::vector<std::string> kAxes{"pipeline", "data", "expert", "fsdp", "seq", "model"};

TEST_F(MeshTable, AxesAndPairsAreEqualToOneRank) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < kAxes.size(); ++i) {
    rows.push_back({kAxes[i] + "=4"});
    for (std::size_t j = i + 1; j < kAxes.size(); ++j)
      rows.push_back({kAxes[i] + "=2," + kAxes[j] + "=2", "", 1e-5, j == kAxes.size() - 1});
  }
  check(rows);
}

TEST_F(MeshTable, TriplesAndSchedulesAreEqualToOneRank) {
  std::vector<Row> rows{{"pipeline=2,fsdp=2,model=2"}, {"expert=2,fsdp=2,model=2"}};
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
    rows.push_back({"pipeline=2", fmt::format("--set mesh.schedule={}", schedule)});
  for (const char* mesh : {"seq=2,model=2", "seq=4"})
    for (const char* attention : {"gather", "all_to_all", "ring", "gather --set mesh.sequence_order=zigzag",
                                  "ring --set mesh.sequence_order=zigzag"})
      rows.push_back(
          {mesh,
           fmt::format("--set model.decoder.stack.layer.attention.num_kv_heads=4 --set mesh.attention={}",
                       attention)});
  for (const char* mesh : {"data=2,seq=2", "fsdp=2,seq=2", "pipeline=2,seq=2"})
    rows.push_back({mesh, "--set mesh.sequence_order=zigzag"});
  check(rows);
}

TEST_F(MeshTable, ModelsAndLearnersAreEqualToOneRank) {
  const std::vector<Row> models{
      {"", "--set model.decoder.stack.layer.attention.dropout=0.1"},
      {"", "--set 'input.separator=\"\\n\\n\"'"},
      {"",
       "--replace 'FeedForward=MoE{num_experts=4 gating=TopK{k=2 capacity=Capacity{factor=1.2} "
       "regularizers=[LossFreeBalancing{}, RouterZLoss{}]}}'",
       1e-5, true},
      {"", "--set model.decoder.head=TiedHead{}"},
      {"", "--modify 'Quantize{}' --modify 'Adapt{with=Lora{rank=4}}'", 1e-5, false, false},
      {"", "--replace 'CrossEntropy=ChunkedLoss{chunk_size=32}'"},
      {"", "--replace 'Attention=LatentAttention{kv_rank=32 head_dim=16 rotary_dim=8}'"},
      {"", "--set 'model.decoder.stack.layer.attention.mask=SlidingWindow{window=16}'"},
      {"", "--replace 'AdamW=Muon{}'", 1e-4, false, false},
      {"", "--set dtype=f16", 1e-3, false, false}};
  std::vector<Row> rows;
  for (const char* mesh : {"data=2,fsdp=2", "fsdp=2,model=2", "data=2,seq=2"})
    for (Row row : models) {
      row.mesh = mesh;
      rows.push_back(row);
    }
  for (Row row : models) {
    row.mesh = "data=2,seq=2";
    row.recipe += " --set mesh.sequence_order=zigzag";
    rows.push_back(row);
  }
  check(rows);
}

TEST_F(MeshTable, ProcessesAreEqualToThreads) {
  if (!full()) GTEST_SKIP() << "MESHLOOM_MESH_FULL is not set";
  if (!backends::mpi::is_built()) GTEST_SKIP() << "the MPI backend is not built";
  const std::string deep = "--steps 20 --set model.decoder.stack.num_layers=4 --set accumulation=";
  for (const std::string mesh :
       {"data=4", "fsdp=4", "model=4", "pipeline=4", "data=2,model=2", "fsdp=2,model=2"}) {
    const std::string options = deep + (mesh == "pipeline=4" ? "4" : "1") + " --mesh " + mesh;
    const Result threads = train("threads-" + mesh, options),
                 processes = train("processes-" + mesh, options,
                                   "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4");
    ASSERT_EQ(threads.code, 0) << threads.said;
    ASSERT_EQ(processes.code, 0) << processes.said;
    expect_equal("threads-" + mesh, "processes-" + mesh, 0);
  }
}

}  // namespace
}  // namespace meshloom::tests
