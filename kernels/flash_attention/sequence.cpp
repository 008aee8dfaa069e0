// Attention over a sequence of which every shard has a part: of queries, keys and values alike, in order. A part is one run of
// positions, or two (Cut::second), so that with a causal mask all shards have as much to compute.
#include <algorithm>
#include <tuple>
#include <utility>

#include "hal/error.h"
#include "kernels/cast/cast.h"
#include "kernels/collective/collective.h"
#include "kernels/concat/concat.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/flash_attention/parts.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/halves.h"

namespace meshloom::kernels::flash_attention_parts {
namespace {

// The parts that shards hold of tensors, along dimension d, at most 1 or the last but one: moved between them and joined.
class Shards {
 public:
  explicit Shards(const Cut& cut)
      : group_{cut.axes, cut.place},
        places_(cut.places),
        place_(cut.place),
        runs_(cut.second ? 2 : 1),
        order_(cut.second ? collective::Order::zigzag : collective::Order::contiguous) {}

  std::int64_t places() const { return places_; }
  std::int64_t place() const { return place_; }

  // All parts, joined along d.
  Tensor gather(Tensor x, std::size_t d) const {
    const auto [outer, inner] = around(x.shape(), d);
    const Shape whole = with(x.shape(), d, x.shape()[d] * places_);
    if (runs_ > 1 && outer > 1) x = permute(reshape(x, {outer, runs_, inner / runs_}), {1, 0, 2});
    Tensor all = all_gather(x, group_, std::vector<std::int64_t>(at(places_), x.type().elements()),
                            {places_ * runs_, outer, inner / runs_}, order_);
    return reshape(outer == 1 ? all : permute(all, {1, 0, 2}), whole);
  }

  // The sum of what all have, of which each gets its part along d.
  Tensor scatter_sum(Tensor x, std::size_t d) const {
    const std::int64_t own = x.shape()[d] / places_, runs = places_ * runs_;
    const auto [outer, inner] = around(x.shape(), d);
    const Tensor parts = outer > 1 ? permute(reshape(x, {outer, runs, inner / runs}), {1, 0, 2})
                                   : reshape(x, {runs, 1, inner / runs});
    Tensor sum = reduce_sum(exchange(parts), 2);
    if (runs_ > 1 && outer > 1) sum = permute(reshape(sum, {runs_, outer, inner / runs}), {1, 0, 2});
    return reshape(cast(sum, x.dtype()), with(x.shape(), d, own));
  }

  // From all of dimension `from` and a part of dimension `to`, which stand side by side, to all of `to` and a part of `from`.
  Tensor redistribute(Tensor x, std::size_t from, std::size_t to) const {
    const Shape& shape = x.shape();
    const std::size_t first = std::min(from, to);
    std::int64_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < first; ++i) outer *= shape[i];
    for (std::size_t i = first + 2; i < shape.size(); ++i) inner *= shape[i];
    const std::int64_t part = shape[from] / places_, own = shape[to];
    Shape redistributed = with(with(shape, from, part), to, own * places_);
    if (from < to) {
      // (outer, places, part own inner) -> (places, outer, part, own inner) -> (outer, part, places, own inner)
      Tensor parts = exchange(permute(reshape(x, {outer, places_, part * own * inner}), {1, 0, 2}));
      return reshape(permute(reshape(parts, {places_, outer * part, own * inner}), {1, 0, 2}), redistributed);
    }
    // (outer own, places, part inner) -> (places, outer, own, part inner) -> (outer, places, own, part inner)
    Tensor parts = exchange(permute(reshape(x, {outer * own, places_, part * inner}), {1, 0, 2}));
    return reshape(permute(reshape(parts, {places_, outer, own * part * inner}), {1, 0, 2}), redistributed);
  }

  // This place's part of a vector.
  Tensor own(Tensor x) const {
    const std::int64_t count = x.dim(0) / places_;
    return reshape(slice_features(reshape(x, {1, x.dim(0)}), place_ * count, count), {count});
  }

  // What the place so many before this one has.
  Tensor passed(Tensor x, std::int64_t by) const {
    return by % places_ == 0 ? x : shift(x, group_, places_, by % places_);
  }

  // The sum of what all have.
  Tensor sum(Tensor x) const {
    const std::int64_t n = x.type().elements();
    return reshape(
        reduce_sum(all_gather(x, group_, std::vector<std::int64_t>(at(places_), n), {places_, n}), 1),
        x.shape());
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static Shape with(Shape shape, std::size_t d, std::int64_t size) {
    shape[d] = size;
    return shape;
  }
  // What belongs to place i of (places or twice as many, ...) goes there; row i of the result, of rank 3, comes from there.
  Tensor exchange(Tensor x) const {
    const Shape& shape = x.shape();
    const std::int64_t own = x.type().elements() / places_;
    if (runs_ == 1)
      return all_to_all(x, group_, std::vector<std::int64_t>(at(places_ * places_), own), shape);
    return all_to_all_alike(x, group_, collective::Sizes::equal(places_, own),
                            {places_, runs_ * shape[1], shape[2]}, order_);
  }

  GroupPlace group_;
  std::int64_t places_, place_;
  std::int64_t runs_;  // of positions that a part has
  collective::Order order_;
};

// The attributes for queries that stand `by` positions further right than T - S, or their offset, says.
Attrs moved_queries(const Attrs& attrs, const AttentionDims& dims, std::int64_t by) {
  if (by == 0) return attrs;
  Attrs moved;
  for (const auto& [name, value] : attrs.items())
    if (name != "causal" && name != "left" && name != "right") moved.set(name, value);
  if (dims.left < kUnlimited) moved.set("left", dims.left - by);
  if (dims.right < kUnlimited) {
    const std::int64_t right = dims.right + by;
    right == 0 ? moved.set("causal", true) : moved.set("right", right);
  }
  return moved;
}

const std::size_t kKeys[] = {1, 2};

std::size_t place_of(int input) { return static_cast<std::size_t>(input); }

// The inputs that have queries, and along which dimension.
std::vector<std::pair<std::size_t, std::size_t>> of_queries(const LocalArgs& args,
                                                            const AttentionDims& dims) {
  std::vector<std::pair<std::size_t, std::size_t>> list{{0, 1}};
  if (args.whole.op != "flash_attention") list.insert(list.end(), {{3, 1}, {4, 2}, {5, 1}});
  if (dims.q_segments >= 0) list.emplace_back(place_of(dims.q_segments), 1);
  for (const int pairs : {dims.bias, dims.attention_bitmask})
    if (pairs >= 0) list.emplace_back(place_of(pairs), 2);
  return list;
}

// A shard's queries, run by run.
struct QueryRuns {
  std::vector<std::int64_t> first;          // positions
  std::int64_t count = 0;                   // of positions of each
  std::vector<std::vector<Tensor>> inputs;  // of the call, of which those that have queries are of the run

  QueryRuns(const LocalArgs& args, const Cut& cut, const std::vector<Tensor>& whole)
      : first{cut.first}, count(cut.count), inputs{whole} {
    if (!cut.second) return;
    first.push_back(*cut.second);
    count /= 2;
    inputs.push_back(whole);
    for (const auto& [input, d] : of_queries(args, attention_dims(args.whole)))
      std::tie(inputs[0][input], inputs[1][input]) = halves(whole[input], d);
  }
};

Tensor added(Tensor sum, Tensor more) {
  more = cast(more, DType::f32);
  return sum ? add(sum, more) : more;
}

// Every shard has all keys and its own queries; what keys get from the queries of all is added up.
std::vector<Tensor> with_all_keys(const LocalArgs& args, const Cut& cut) {
  const AttentionDims dims = attention_dims(args.whole);
  const Shards shards(cut);
  std::vector<Tensor> inputs = args.inputs;
  for (const int keys : {1, 2, dims.k_segments})
    if (keys >= 0) inputs[place_of(keys)] = shards.gather(inputs[place_of(keys)], 1);
  const QueryRuns runs(args, cut, inputs);
  const std::int64_t behind = dims.query_offset >= 0 ? 0 : dims.s - runs.count;
  std::vector<Tensor> outputs;
  for (std::size_t run = 0; run < runs.first.size(); ++run) {
    std::vector<Tensor> made = args.builder.call(args.whole.op, runs.inputs[run],
                                                 moved_queries(args.attrs, dims, runs.first[run] - behind));
    if (run == 0) {
      outputs = std::move(made);
      continue;
    }
    const bool grad = args.whole.op == "flash_attention_grad";
    outputs[0] = join_halves(outputs[0], made[0], args.whole.op == "flash_attention_bias_grad" ? 2 : 1);
    if (args.whole.op == "flash_attention") outputs[1] = join_halves(outputs[1], made[1], 2);
    for (std::size_t of_keys = 1; grad && of_keys < made.size(); ++of_keys) {
      Tensor& sum = outputs[of_keys];
      sum = cast(added(cast(sum, DType::f32), made[of_keys]), sum.dtype());
    }
  }
  if (args.whole.op != "flash_attention_grad") return outputs;
  for (const std::size_t keys : kKeys) outputs[keys] = shards.scatter_sum(outputs[keys], 1);
  if (dims.sink >= 0) outputs[3] = shards.sum(outputs[3]);
  return outputs;
}

// Every shard has the whole sequence for a part of its heads (Jacobs et al., DeepSpeed Ulysses, 2023).
std::vector<Tensor> with_own_heads(const LocalArgs& args, const Cut& cut) {
  if (cut.second)
    throw hal::Error(
        "flash_attention divided by all_to_all",
        "has whole sequences, which are balanced in contiguous order; gather and ring take tokens "
        "in zigzag",
        "zigzag");
  const AttentionDims dims = attention_dims(args.whole);
  const Shards shards(cut);
  const std::int64_t heads = args.inputs[0].dim(2), keys = args.inputs[1].dim(2);
  if (heads % cut.places != 0 || keys % cut.places != 0)
    throw hal::Error(
        "flash_attention divided by all_to_all",
        "the " + std::to_string(cut.places) +
            " parts of a sequence must divide the heads that a rank has; gather and ring need not",
        std::to_string(heads) + " heads of queries and " + std::to_string(keys) + " of keys");
  std::vector<Tensor> inputs = args.inputs;
  const bool grad = args.whole.op != "flash_attention";
  const auto to_heads = [&](int input, std::size_t h, std::size_t s) {
    inputs[place_of(input)] = shards.redistribute(inputs[place_of(input)], h, s);
  };
  for (const int x : {0, 1, 2}) to_heads(x, 2, 1);
  if (grad) to_heads(3, 2, 1), to_heads(4, 1, 2), to_heads(5, 2, 1);
  for (const int segments : {dims.q_segments, dims.k_segments})
    if (segments >= 0) inputs[place_of(segments)] = shards.gather(inputs[place_of(segments)], 1);
  if (dims.sink >= 0) inputs[place_of(dims.sink)] = shards.own(inputs[place_of(dims.sink)]);
  const auto pairs = [&](int input, bool of_heads) {
    if (input < 0) return;
    Tensor& x = inputs[place_of(input)];
    x = of_heads ? shards.redistribute(x, 1, 2) : shards.gather(x, 2);
  };
  pairs(dims.bias, dims.bias_heads);
  pairs(dims.attention_bitmask, dims.bitmask_heads);
  std::vector<Tensor> outputs = args.builder.call(args.whole.op, inputs, args.attrs);
  if (args.whole.op == "flash_attention_bias_grad")
    return {dims.bias_heads ? shards.redistribute(outputs[0], 2, 1) : shards.scatter_sum(outputs[0], 2)};
  outputs[0] = shards.redistribute(outputs[0], 1, 2);
  if (!grad) return {outputs[0], shards.redistribute(outputs[1], 2, 1)};
  for (const std::size_t k : kKeys) outputs[k] = shards.redistribute(outputs[k], 1, 2);
  if (dims.sink >= 0) outputs[3] = shards.gather(outputs[3], 0);
  return outputs;
}

// Keys go from shard to shard, and the results of blocks of keys are merged by their log-sum-exp (Liu et al., ring attention,
// 2023). A block is a run of queries and a run of keys. A shard that sees nothing of the keys that it has attends to a block of
// them as well, which costs next to nothing: what it computes depends on every move then, so that no pass takes a move from one
// shard and leaves it to another.
class Ring {
 public:
  Ring(const LocalArgs& args, const Cut& cut)
      : args_(args),
        dims_(attention_dims(args.whole)),
        shards_(cut),
        keys_(args.inputs),
        queries_(args, cut, args.inputs),
        runs_(queries_.first.size()) {
    if (dims_.prefix >= 0 || dims_.query_offset >= 0 || dims_.bias >= 0 || dims_.attention_bitmask >= 0)
      throw hal::Error(
          "flash_attention divided as a ring",
          "takes full, causal and windowed attention, with segments, sinks and soft caps; gather takes all",
          dims_.extras());
    last_ = cut.places - 1;
    while (last_ > 0 && !anyone_sees(last_)) --last_;
  }

  std::vector<Tensor> forward() {
    std::vector<Tensor> o(runs_), lse(runs_);
    for (std::int64_t step = 0; step <= last_; ++step) {
      move_keys(step);
      for (const Block& block : blocks(step)) {
        const std::vector<Tensor> made = call(step, block);
        const Tensor features_first = permute(made[0], {3, 0, 2, 1});  // (B, H, S) is its trailing part
        merge(o[block.queries], lse[block.queries], features_first, made[1]);
      }
    }
    for (Tensor& run : o) run = cast(permute(run, {1, 3, 2, 0}), args_.inputs[0].dtype());
    return {joined(o, 1), joined(lse, 2)};
  }

  // The gradients of keys travel with them, and home at the end.
  std::vector<Tensor> backward() {
    std::vector<Tensor> dq(runs_), of_keys(2);
    Tensor dsink;
    for (std::int64_t step = 0; step <= last_; ++step) {
      move_keys(step);
      if (step > 0)
        for (Tensor& sum : of_keys) sum = shards_.passed(sum, 1);
      std::vector<std::vector<Tensor>> made_of_keys(2, std::vector<Tensor>(runs_));  // by run
      for (const Block& block : blocks(step)) {
        const std::vector<Tensor> made = call(step, block);
        dq[block.queries] = added(dq[block.queries], made[0]);
        for (const std::size_t k : kKeys) {
          Tensor& of_run = made_of_keys[k - 1][block.keys];
          of_run = added(of_run, made[k]);
        }
        if (has_sink(step, block)) dsink = added(dsink, made[3]);
      }
      for (const std::size_t k : kKeys) {
        std::vector<Tensor>& of_runs = made_of_keys[k - 1];
        Shape shape = args_.inputs[k].shape();
        shape[1] = queries_.count;
        for (Tensor& of_run : of_runs)
          if (!of_run) of_run = constant(args_.builder, 0, shape);
        of_keys[k - 1] = added(of_keys[k - 1], joined(of_runs, 1));
      }
      if (step == 0 && dsink) dsink = shards_.sum(dsink);
    }
    for (Tensor& run : dq) run = cast(run, args_.inputs[0].dtype());
    std::vector<Tensor> result{joined(dq, 1)};
    for (Tensor& sum : of_keys)
      result.push_back(cast(shards_.passed(sum, shards_.places() - last_), args_.inputs[0].dtype()));
    if (dsink) result.push_back(dsink);
    return result;
  }

 private:
  static constexpr double kNothing = -1e30;  // in place of the minus infinity of a row that sees nothing

  // Numbers of runs.
  struct Block {
    std::size_t queries = 0, keys = 0;
  };

  // The position of the first key of a run that `place` has.
  std::int64_t position(std::int64_t place, std::size_t run) const {
    return (run == 0 ? place : 2 * shards_.places() - 1 - place) * queries_.count;
  }
  // The place whose keys are here.
  std::int64_t source(std::int64_t place, std::int64_t step) const {
    return (place + shards_.places() - step) % shards_.places();
  }

  // How far the queries of a block stand behind its keys.
  std::int64_t distance(std::int64_t place, std::int64_t step, const Block& block) const {
    return position(place, block.queries) - position(source(place, step), block.keys);
  }

  // Whether a place sees keys of a block. It always sees its own, which have the sink.
  bool visible(std::int64_t place, std::int64_t step, const Block& block) const {
    const AttentionMask mask = mask_of(distance(place, step, block));
    return (step == 0 && block.queries == block.keys) || mask.window_pairs() > 0;
  }

  AttentionMask mask_of(std::int64_t distance) const {
    return {queries_.count, queries_.count, distance, dims_.left, dims_.right};
  }

  std::vector<Block> visible_blocks(std::int64_t place, std::int64_t step) const {
    std::vector<Block> list;
    for (std::size_t queries = 0; queries < runs_; ++queries)
      for (std::size_t keys = 0; keys < runs_; ++keys)
        if (visible(place, step, {queries, keys})) list.push_back({queries, keys});
    return list;
  }

  bool anyone_sees(std::int64_t step) const {
    for (std::int64_t place = 0; place < shards_.places(); ++place)
      if (!visible_blocks(place, step).empty()) return true;
    return false;
  }

  // Those of this place: at least one.
  std::vector<Block> blocks(std::int64_t step) const {
    std::vector<Block> list = visible_blocks(shards_.place(), step);
    if (list.empty()) list.emplace_back();
    return list;
  }

  void move_keys(std::int64_t step) {
    key_runs_.assign(runs_, keys_);
    for (const int k : {1, 2, dims_.k_segments}) {
      if (k < 0) continue;
      Tensor& keys = keys_[place_of(k)];
      if (step > 0) keys = shards_.passed(keys, 1);
      if (runs_ == 1)
        key_runs_[0][place_of(k)] = keys;
      else
        std::tie(key_runs_[0][place_of(k)], key_runs_[1][place_of(k)]) = halves(keys, 1);
    }
  }

  bool has_sink(std::int64_t step, const Block& block) const {
    return dims_.sink >= 0 && step == 0 && block.queries == block.keys;
  }

  std::vector<Tensor> call(std::int64_t step, const Block& block) const {
    const std::int64_t behind = distance(shards_.place(), step, block);
    AttentionDims dims = dims_;
    // What shows all of a block is no window.
    if (mask_of(behind).window_cover(0, queries_.count, 0, queries_.count) == Cover::full)
      dims.left = dims.right = kUnlimited;
    const Attrs moved = moved_queries(args_.attrs, dims, behind);
    const bool sink = has_sink(step, block);
    Attrs attrs;
    for (const auto& [name, value] : moved.items())
      if (sink || name != "sink") attrs.set(name, value);
    std::vector<Tensor> inputs = queries_.inputs[block.queries];
    for (const int k : {1, 2, dims_.k_segments})
      if (k >= 0) inputs[place_of(k)] = key_runs_[block.keys][place_of(k)];
    if (dims_.sink >= 0 && !sink) inputs.erase(inputs.begin() + dims_.sink);
    return args_.builder.call(args_.whole.op, inputs, attrs);
  }

  static void merge(Tensor& o, Tensor& lse, Tensor more, Tensor more_lse) {
    if (!o) {
      o = cast(more, DType::f32), lse = more_lse;
      return;
    }
    const auto [a, b] = inputs<2>();
    const Expr row_max = max(max(a, b), kNothing);
    const Tensor both = elementwise({lse, more_lse}, row_max + log(exp(a - row_max) + exp(b - row_max)));
    const auto [x, y, of_x, of_y, of_both] = inputs<5>();
    const Expr safe = max(of_both, kNothing);
    o = elementwise({o, more, lse, more_lse, both}, {x * exp(of_x - safe) + y * exp(of_y - safe)},
                    o.shape())[0];
    lse = both;
  }

  static Tensor joined(const std::vector<Tensor>& runs, std::size_t d) {
    return runs.size() == 1 ? runs[0] : join_halves(runs[0], runs[1], d);
  }

  const LocalArgs& args_;
  AttentionDims dims_;
  Shards shards_;
  std::vector<Tensor> keys_;                   // of the inputs those that are here
  std::vector<std::vector<Tensor>> key_runs_;  // the same, run by run
  QueryRuns queries_;
  std::size_t runs_;
  std::int64_t last_ = 0;  // step in which any shard sees its keys
};

}  // namespace

std::vector<Tensor> local(const LocalArgs& args) {
  const auto found = args.cuts.find('S');
  if (found == args.cuts.end()) return args.builder.call(args.whole.op, args.inputs, args.attrs);
  const Cut& cut = found->second;
  if (args.method.empty() || args.method == "gather") return with_all_keys(args, cut);
  if (args.method == "all_to_all") return with_own_heads(args, cut);
  if (args.method != "ring")
    throw hal::Error("flash_attention", "a sequence is divided by gather, all_to_all or ring",
                     "'" + args.method + "'");
  Ring ring(args, cut);
  return args.whole.op == "flash_attention" ? ring.forward() : ring.backward();
}

}  // namespace meshloom::kernels::flash_attention_parts
