// Tokens to text while they come: what is given out is final, valid UTF-8, and ends before the first stop string.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/tokenizer/tokenizer.h"

namespace meshloom::trainer {

// Appends the characters of `bytes` to `text`, with U+FFFD for each sequence that is no character (as Unicode recommends and
// Python's errors="replace" does), and returns how many bytes are left: the beginning of a character, at most three.
std::size_t append_utf8(std::string_view bytes, std::string& text);

std::int64_t count_characters(std::string_view text);  // of UTF-8

// Finds the first of several strings in a text that comes in parts.
class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& stops);  // none of them empty
  // Returns how many bytes of the text so far precede the match, or end no beginning of one. It is final, and never falls.
  std::size_t add(std::string_view part);
  bool found() const { return found_; }

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t>
        shorter;  // by length of a match: the longest that is also its end (Knuth, Morris and Pratt)
    std::size_t matched = 0;
  };
  std::vector<Stop> stops_;
  std::size_t seen_ = 0, final_ = 0;
  bool found_ = false;
};

// The text of all tokens is Tokenizer::decode of them, as append_utf8 writes it, up to the first stop string. A token costs the
// decoding of some tens of tokens, however long the text is.
class TextStream {
 public:
  // The text continues that of the tokens in `context`, which is not given out. `tokenizer` must outlive this.
  explicit TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> context = {},
                      const std::vector<std::string>& stops = {});
  // Appends a token and returns what is final now: no incomplete character, nothing that may begin a stop string.
  std::string add(std::int32_t id);
  // The rest, when no token follows.
  std::string finish();
  // Characters of the text of all tokens so far, which a stop string may still cut off; an incomplete one is one.
  std::int64_t characters() const;
  // Whether a stop string was found; further tokens have no text.
  bool stopped() const { return stops_.found(); }

 private:
  std::string pass(std::string_view bytes);
  void shorten(const std::string& text);

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> window_;  // the last tokens: what a token adds depends on those before it
  std::string window_text_, context_text_;
  std::size_t done_ = 0;         // bytes of the window's text that were passed on
  std::size_t longest_;          // a longer window is shortened
  std::string bytes_;            // of an incomplete character
  std::int64_t characters_ = 0;  // complete ones
  StopStrings stops_;
  std::string held_;       // text that may begin a stop string
  std::size_t given_ = 0;  // bytes of all text before held_
};

}  // namespace meshloom::trainer
