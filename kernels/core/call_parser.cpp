// Parses calls from text: shorthands per op, and the general form that rows print.
#include "kernels/core/call_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>

#include "hal/error.h"
#include "hal/suggest.h"
#include "kernels/flash_attention/flash_attention.h"
#include "kernels/matmul/matmul.h"
#include "kernels/program/call_text.h"

namespace meshloom::kernels {
namespace {

// Thrown within this file; parse_calls makes an Error of it, which says where.
struct Refusal {
  std::string rule, found;
};

[[noreturn]] void refuse(const std::string& rule, std::string_view found) {
  throw Refusal{rule, "'" + std::string(found) + "'"};
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Splits outside of brackets and quotes.
std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == at && depth == 0) {
      parts.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trim(text.substr(begin)));
  return parts;
}

// Parses a dimension or an integer of a list attribute.
std::int64_t integer(std::string_view text, std::int64_t min, std::string_view whole) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < min ||
      value > std::int64_t{1} << 40)
    refuse(fmt::format("each dimension must be a number from {} to 2^40", min), whole);
  return value;
}

Shape dimensions(std::string_view text, char at, std::string_view whole) {
  Shape shape;
  if (trim(text).empty()) return shape;
  for (std::string_view part : split(text, at)) shape.push_back(integer(part, 1, whole));
  return shape;
}

// "f32(4, 64)"
TensorType tensor(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')')
    refuse("a tensor must read DTYPE(DIM, DIM, ...)", text);
  return {hal::dtype_from_string(trim(text.substr(0, open))),
          dimensions(text.substr(open + 1, text.size() - open - 2), ',', text)};
}

Attr attribute(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return std::string(text.substr(1, text.size() - 2));
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::vector<std::int64_t> list;
    const std::string_view inner = text.substr(1, text.size() - 2);
    if (!trim(inner).empty())
      for (std::string_view part : split(inner, ',')) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc() || end != part.data() + part.size())
          refuse("a list must hold integers", text);
        list.push_back(value);
      }
    return list;
  }
  std::int64_t whole = 0;
  const char* last = text.data() + text.size();
  if (const auto [end, error] = std::from_chars(text.data(), last, whole);
      error == std::errc() && end == last)
    return whole;
  double value = 0;
  if (const auto [end, error] = std::from_chars(text.data(), last, value);
      error == std::errc() && end == last)
    return value;
  refuse("an attribute must be true, false, a number, \"a text\" or [a list]", text);
}

// "f32(4, 64), f32(64) {eps=1e-05}", with or without the op's name before it.
Case general(const std::string& op, std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with(op) && (rest.size() == op.size() || rest[op.size()] == ' '))
    rest = trim(rest.substr(op.size()));
  Case result;
  const std::size_t brace = rest.find('{');
  const std::string_view tensors = trim(rest.substr(0, brace));
  if (!tensors.empty())
    for (std::string_view part : split(tensors, ',')) {
      if (part.empty()) refuse("there must be a tensor between two commas", text);
      result.inputs.push_back(tensor(part));
    }
  if (brace == std::string_view::npos) return result;
  if (rest.back() != '}') refuse("attributes must end with '}'", text);
  const std::string_view attrs = trim(rest.substr(brace + 1, rest.size() - brace - 2));
  if (attrs.empty()) return result;
  for (std::string_view part : split(attrs, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) refuse("an attribute must read NAME=VALUE", part);
    result.attrs.set(std::string(trim(part.substr(0, equals))), attribute(trim(part.substr(equals + 1))));
  }
  return result;
}

struct Item {
  Shape dims;
  std::vector<std::string_view> options;  // after the colons
  std::string_view text;
  DType dtype;

  TensorType type(Shape shape) const { return {dtype, std::move(shape)}; }
};

Case matmul(const Item& item) {
  if (item.dims.size() != 3 && item.dims.size() != 4) refuse("matmul takes MxNxK or GxMxNxK", item.text);
  Shape dims = item.dims;
  Shape batch;
  if (dims.size() == 4) {
    batch = {dims.front()};
    dims.erase(dims.begin());
  }
  bool ta = false, tb = false, bias = false, residual = false;
  std::string activation;
  for (std::string_view option : item.options) {
    if (option == "ta")
      ta = true;
    else if (option == "tb")
      tb = true;
    else if (option == "bias")
      bias = true;
    else if (option == "residual")
      residual = true;
    else if (option == "relu" || option == "silu" || option == "gelu" || option == "gelu_tanh") {
      if (!activation.empty()) refuse("matmul takes one activation", item.text);
      activation = option;
    } else
      refuse("matmul takes the options ta, tb, bias, residual, relu, silu, gelu, gelu_tanh", option);
  }
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    Shape shape = batch;
    shape.insert(shape.end(), {rows, columns});
    return item.type(shape);
  };
  const std::int64_t m = dims[0], n = dims[1], k = dims[2];
  Case result;
  result.inputs = {ta ? matrix(k, m) : matrix(m, k), tb ? matrix(n, k) : matrix(k, n)};
  if (bias) result.inputs.push_back(item.type({n}));
  if (residual) result.inputs.push_back(matrix(m, n));
  for (const auto& [set, name] :
       {std::pair{ta, "trans_a"}, {tb, "trans_b"}, {bias, "bias"}, {residual, "residual"}})
    if (set) result.attrs.set(name, true);
  if (!activation.empty()) result.attrs.set("activation", activation);
  return result;
}

Case attention(const Item& item, bool backward) {
  if (item.dims.size() != 5) refuse("flash attention takes B,S,H,KV,D", item.text);
  const std::int64_t b = item.dims[0], s = item.dims[1], h = item.dims[2], kv = item.dims[3],
                     d = item.dims[4];
  std::int64_t t = s;
  std::int64_t window = 0;
  bool causal = true, segments = false, query_offset = false, bias = false, bits = false;
  for (std::string_view option : item.options) {
    if (option == "full")
      causal = false;
    else if (option == "segments")
      segments = true;
    else if (option == "query_offset")
      query_offset = true;
    else if (option == "bias")
      bias = true;
    else if (option == "bitmask")
      bits = true;
    else if (option.starts_with("window="))
      window = integer(option.substr(7), 1, option);
    else if (option.starts_with("t="))
      t = integer(option.substr(2), 1, option);
    else
      refuse(
          "flash attention takes the options full, t=KEYS, window=KEYS, segments, query_offset, bias and "
          "bitmask",
          option);
  }
  const TensorType q = item.type({b, s, h, d}), k = item.type({b, t, kv, d});
  Case result;
  result.inputs = {q, k, k};
  if (backward) result.inputs.insert(result.inputs.end(), {q, item.type({b, h, s}), q});
  if (causal) result.attrs.set("causal", true);
  if (window > 0) result.attrs.set("left", window - 1);
  result.attrs.set("scale", 1 / std::sqrt(static_cast<double>(d)));
  const auto take = [&](bool wanted, const char* flag, DType dtype, std::initializer_list<Shape> shapes) {
    if (!wanted) return;
    result.attrs.set(flag, true);
    for (const Shape& shape : shapes) result.inputs.push_back({dtype, shape});
  };
  take(segments, "segments", DType::i32, {{b, s}, {b, t}});
  take(query_offset, "query_offset", DType::i32, {{b}});
  take(bias, "bias", DType::f32, {{1, h, s, t}});
  take(bits, "attention_bitmask", DType::i32, {{1, 1, s, (t + 31) / 32}});
  return result;
}

// Ops over rows of one length.
Case rows(const Contract& contract, const Item& item) {
  if (item.dims.size() != 2) refuse(contract.name + " takes ROWSxN", item.text);
  const bool cross_entropy = contract.name.starts_with("cross_entropy");
  bool residual = false;
  for (std::string_view option : item.options)
    if (option == "residual" && contract.name.ends_with("_norm_grad"))
      residual = true;
    else
      refuse(contract.name +
                 (contract.name.ends_with("_norm_grad") ? " takes the option residual" : " takes no options"),
             option);
  const std::int64_t r = item.dims[0], n = item.dims[1];
  const TensorType x = item.type({r, n}), weight = item.type({n}), row = item.type({r});
  Case result;
  if (cross_entropy) {
    result.inputs = {x, {DType::i32, {r}}};
    if (contract.name == "cross_entropy_grad") result.inputs.insert(result.inputs.end(), {row, row});
  } else if (contract.name == "rms_norm") {
    result = {{}, {x, weight}, {{"eps", 1e-5}}};
  } else if (contract.name == "layer_norm") {
    result = {{}, {x, weight, weight}, {{"eps", 1e-5}}};
  } else if (contract.name == "rms_norm_grad") {
    result.inputs = {x, weight, row, x};
  } else {
    result.inputs = {x, weight, row, row, x};
  }
  if (residual) {
    result.inputs.push_back(x);
    result.attrs.set("residual", true);
  }
  return result;
}

Case rope(const Item& item) {
  if (item.dims.size() != 4) refuse("rope takes BxSxHxD", item.text);
  if (!item.options.empty()) refuse("rope takes no options", item.options.front());
  return {{},
          {item.type(item.dims)},
          {{"theta", 10000.0},
           {"dims", item.dims[3]},
           {"pairing", std::string("half")},
           {"offset", std::int64_t{0}}}};
}

Case shorthand(const Contract& contract, const Item& item) {
  const std::string& op = contract.name;
  if (op == "matmul") return matmul(item);
  if (op.starts_with("flash_attention")) return attention(item, op != "flash_attention");
  if (op == "rope") return rope(item);
  for (const char* name :
       {"rms_norm", "rms_norm_grad", "layer_norm", "layer_norm_grad", "cross_entropy", "cross_entropy_grad"})
    if (op == name) return rows(contract, item);
  const std::vector<Case> cases = contract.cases();
  refuse(op + " has no shorthand: type a call such as '" +
             (cases.empty() ? "" : call_text(op, cases.front().inputs, cases.front().attrs)) + "'",
         item.text);
}

// The shorthand of this call, if it has one, which shape_text checks.
std::string guess(const CallView& call) {
  const std::string op(call.op);
  if (op == "matmul") {
    const MatmulDims d = matmul_dims(call);
    std::string text = call.inputs[0].rank() == 3 ? fmt::format("{}x", d.g) : "";
    text += fmt::format("{}x{}x{}", d.m, d.n, d.k);
    if (d.trans_a) text += ":ta";
    if (d.trans_b) text += ":tb";
    if (d.bias >= 0) text += ":bias";
    if (d.residual >= 0) text += ":residual";
    if (d.activation != Activation::none) text += ":" + std::string(to_string(d.activation));
    return text;
  }
  if (op.starts_with("flash_attention")) {
    const AttentionDims d = attention_dims(call);
    return fmt::format("{},{},{},{},{}{}{}{}{}{}{}{}", d.b, d.s, d.h, d.kv, d.d, d.causal ? "" : ":full",
                       d.t == d.s ? "" : fmt::format(":t={}", d.t),
                       d.left < kUnlimited ? fmt::format(":window={}", d.left + 1) : "",
                       d.q_segments >= 0 ? ":segments" : "", d.query_offset >= 0 ? ":query_offset" : "",
                       d.bias >= 0 ? ":bias" : "", d.attention_bitmask >= 0 ? ":bitmask" : "");
  }
  if (call.inputs.empty()) return "";
  const Shape& shape = call.inputs[0].shape;
  return shape.size() < 2
             ? ""
             : fmt::format("{}{}", fmt::join(shape, "x"),
                           op.ends_with("_norm_grad") && call.attrs.flag("residual") ? ":residual" : "");
}

std::vector<ParsedCall> parsed(const Contract& contract, std::string_view text, DType dtype) {
  std::vector<ParsedCall> result;
  for (std::string_view part : split(text, ';')) {
    if (part.empty()) continue;  // a ';' at the end
    if (part.find('(') != std::string_view::npos || part.find('{') != std::string_view::npos) {
      result.push_back({general(contract.name, part), ""});
      continue;
    }
    const std::string_view dims = part.substr(0, part.find(':'));
    // "2048x2048x2048,128x576x49152" are two shapes, "4,1024,12,12,64" is one: the first dimensions decide.
    const bool by_x = dims.find('x') != std::string_view::npos;
    for (std::string_view one : by_x ? split(part, ',') : std::vector{part}) {
      const std::vector<std::string_view> pieces = split(one, ':');
      Item item{dimensions(pieces.front(), by_x ? 'x' : ',', one),
                {pieces.begin() + 1, pieces.end()},
                one,
                hal::is_low_precision(dtype) ? DType::f32 : dtype};
      if (item.dims.empty()) refuse("a shape must have dimensions", one);
      Case wide = shorthand(contract, item);
      if (!hal::is_low_precision(dtype)) {
        result.push_back({std::move(wide), std::string(one)});
        continue;
      }
      std::optional<Case> narrow = to_low_precision(contract, std::move(wide), dtype);
      if (!narrow)
        throw Error("--dtype", contract.name + " must take it", std::string(hal::to_string(dtype)));
      result.push_back({std::move(*narrow), std::string(one)});
    }
  }
  if (result.empty()) refuse("must name a shape", text);
  return result;
}

}  // namespace

std::string shape_text(const Contract& contract, const CallView& call, DType dtype) {
  const std::string text = guess(call);
  try {
    if (!text.empty()) {
      const std::vector<std::string_view> pieces = split(text, ':');
      const char at = pieces.front().find('x') != std::string_view::npos ? 'x' : ',';
      const Item item{dimensions(pieces.front(), at, text), {pieces.begin() + 1, pieces.end()}, text, dtype};
      const Case again = shorthand(contract, item);
      if (again.inputs == call.inputs && again.attrs == call.attrs) return text;
    }
  } catch (const Refusal&) {  // the call has no shorthand
  } catch (const Error&) {
  }
  return inputs_text(call.inputs, call.attrs);
}

std::vector<ParsedCall> parse_calls(const Contract& contract, std::string_view text, DType dtype,
                                    const std::string& where) {
  try {
    return parsed(contract, text, dtype);
  } catch (const Refusal& refusal) {
    throw Error(where, refusal.rule, refusal.found);
  }
}

}  // namespace meshloom::kernels
