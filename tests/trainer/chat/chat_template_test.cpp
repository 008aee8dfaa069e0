#include "trainer/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/message_of.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message_of;

Json turn(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }
const Json kTurns = {turn("user", "Hi"), turn("assistant", "Hello."), turn("user", "Bye"),
                     turn("assistant", "See you.")};

Json with_system(Json turns) {
  turns.insert(turns.begin(), turn("system", "Be brief."));
  return turns;
}

ChatOptions tokens(const char* bos, const char* eos) {
  ChatOptions options;
  options.bos_token = bos;
  options.eos_token = eos;
  return options;
}

std::vector<std::string> learned(const RenderedChat& chat) {
  std::vector<std::string> parts;
  for (const auto& [start, end] : chat.assistant_ranges)
    parts.push_back(chat.text.substr(start, end - start));
  return parts;
}

std::string refusal(const std::string& source) {
  return message_of([&] { ChatTemplate(source, "chat_template.jinja").render(kTurns, {}); });
}

// The formats of well-known models, each written for this test.
struct Format {
  const char* name;
  const char* source;
  const char* bos;
  const char* eos;
  bool system;
  std::vector<std::string> added_tokens;
  const char* text;
  const char* prompt;  // what add_generation_prompt adds to the text
  std::vector<std::string> learned;
};

const std::vector<Format> kFormats = {
    {"ChatML",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
     "",
     "<|im_end|>",
     true,
     {},
     "<|im_start|>system\nBe "
     "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
     "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSee you.<|im_end|>\n",
     "<|im_start|>assistant\n",
     {"Hello.<|im_end|>\n", "See you.<|im_end|>\n"}},
    {"Llama 3",
     "{{- bos_token }}\n{%- for m in messages %}\n  {{- '<|start_header_id|>' ~ m['role'] ~ "
     "'<|end_header_id|>\\n\\n' }}\n"
     "  {{- m['content'] | trim ~ '<|eot_id|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
     "  {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n",
     "<|begin_of_text|>",
     "<|eot_id|>",
     false,
     {},
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|"
     "end_header_id|>"
     "\n\nHello.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\nSee you.<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     {"Hello.<|eot_id|>", "See you.<|eot_id|>"}},
    // The system message stands before the last question: what was rendered before changes with every turn.
    {"Mistral",
     "{%- set turns = messages %}{%- if messages[0].role == 'system' %}{% set turns = messages[1:] %}{% "
     "endif -%}"
     "{{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}[INST] "
     "{% if loop.index0 >= turns|length - 2 and messages[0].role == 'system' %}{{ messages[0].content + "
     "'\\n\\n' }}{% endif %}"
     "{{ m.content }} [/INST]{% else %} {{ m.content ~ eos_token }}{% endif %}{% endfor %}",
     "<s>",
     "</s>",
     true,
     {"[INST]", "[/INST]", "</s>"},
     "<s>[INST] Hi [/INST] Hello.</s>[INST] Be brief.\n\nBye [/INST] See you.</s>",
     "",
     {" Hello.</s>", " See you.</s>"}},
    {"Gemma",
     "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
     "{{ '<start_of_turn>' + role + '\\n' + m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
     "<bos>",
     "<eos>",
     false,
     {},
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>"
     "user\n"
     "Bye<end_of_turn>\n<start_of_turn>model\nSee you.<end_of_turn>\n",
     "<start_of_turn>model\n",
     {"Hello.<end_of_turn>\n", "See you.<end_of_turn>\n"}},
    // The conversation ends with a token of its own.
    {"Phi 3",
     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{{ '' }}{% else %}{{ eos_token }}{% endif %}",
     "<s>",
     "<|endoftext|>",
     true,
     {"<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>"},
     "<|system|>\nBe "
     "brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"
     "See you.<|end|>\n<|endoftext|>",
     nullptr,
     {"Hello.<|end|>\n", "See you.<|end|>\n<|endoftext|>"}},
    {"Zephyr",
     "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
     "message['content'] + eos_token }}\n"
     "{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n{% "
     "else %}\n"
     "{{ '<|assistant|>\\n' + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and "
     "add_generation_prompt %}\n"
     "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
     "<s>",
     "</s>",
     true,
     {},
     "<|system|>\nBe "
     "brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello.</s>\n<|user|>\nBye</s>\n<|assistant|>\nSee "
     "you.</s>\n",
     "<|assistant|>\n",
     {"Hello.</s>\n", "See you.</s>\n"}},
    // The prompt opens a reasoning block, which earlier answers do not have.
    {"DeepSeek R1",
     "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}{% set ns.system = "
     "m.content %}{% endfor %}"
     "{{ bos_token ~ ns.system }}{% for m in messages if m.role != 'system' %}{% if m.role == 'user' "
     "%}<|User|>{{ m.content }}"
     "{% else %}<|Assistant|>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<|Assistant|><think>\n\n{% endif %}",
     "<|bos|>",
     "<|eos|>",
     true,
     {},
     "<|bos|>Be brief.<|User|>Hi<|Assistant|>Hello.<|eos|><|User|>Bye<|Assistant|>See you.<|eos|>",
     "<|Assistant|><think>\n\n",
     {"Hello.<|eos|>", "See you.<|eos|>"}},
    // The last answer has a reasoning block, even if empty; earlier ones do not.
    {"Qwen 3",
     "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = "
     "loop.index0 %}{% endif %}"
     "{% endfor %}{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' }}"
     "{% if m.role == 'assistant' and loop.index0 > ns.last %}{{ '<think>\\n' ~ m.reasoning_content ~ "
     "'\\n</think>\\n\\n' }}{% endif %}"
     "{{ m.content ~ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
     "'<|im_start|>assistant\\n' }}{% endif %}",
     "",
     "<|im_end|>",
     false,
     {},
     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|"
     ">\n"
     "<|im_start|>assistant\n<think>\n\n</think>\n\nSee you.<|im_end|>\n",
     "<|im_start|>assistant\n",
     {"Hello.<|im_end|>\n", "<think>\n\n</think>\n\nSee you.<|im_end|>\n"}},
    // The prompt opens a reasoning block; earlier answers have a closed one, the last answer an empty one.
    {"GLM",
     "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|assistant|>"
     "{% if loop.last %}<think></think>{% else %}</think>{% endif %}{{ m.content }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|><think>{% endif %}",
     "",
     "<|user|>",
     false,
     {"<|user|>", "<|assistant|>", "<think>", "</think>"},
     "<|user|>Hi<|assistant|></think>Hello.<|user|>Bye<|assistant|><think></think>See you.",
     "<|assistant|><think>",
     {"</think>Hello.", "</think>See you."}},
    {"Command R",
     "{{ bos_token }}{% macro said(who, what) %}{{ '<|START_OF_TURN_TOKEN|><|' ~ who ~ '_TOKEN|>' ~ what ~ "
     "'<|END_OF_TURN_TOKEN|>' }}"
     "{% endmacro %}{% set names = {'user': 'USER', 'assistant': 'CHATBOT', 'system': 'SYSTEM'} %}"
     "{% for m in messages %}{{ said(names[m.role], m.content.strip()) }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
     "<BOS_TOKEN>",
     "<|END_OF_TURN_TOKEN|>",
     false,
     {},
     "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|"
     "CHATBOT_TOKEN|>Hello."
     "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|>"
     "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>See you.<|END_OF_TURN_TOKEN|>",
     "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     {"Hello.<|END_OF_TURN_TOKEN|>", "See you.<|END_OF_TURN_TOKEN|>"}},
    {"Llama 2",
     "{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' ~ messages[0]['content'] ~ "
     "'\\n<</SYS>>\\n\\n' %}"
     "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}{% for "
     "m in rest %}"
     "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% "
     "endif %}"
     "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ m.content.strip() "
     "~ ' [/INST]' }}"
     "{% else %}{{ ' ' ~ m.content.strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}",
     "<s>",
     "</s>",
     true,
     {},
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] Bye [/INST] See you. </s>",
     "",
     {" Hello. </s>", " See you. </s>"}},
    {"generation blocks",
     "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content "
     "}}<end>{% endgeneration %}"
     "{% else %}{{ m.content }}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
     "%}",
     "",
     "",
     false,
     {},
     "<user>Hi<end><assistant>Hello.<end><user>Bye<end><assistant>See you.<end>",
     "<assistant>",
     {"Hello.<end>", "See you.<end>"}},
};

TEST(ChatTemplate, FormatsOfModels) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    const ChatTemplate chat(format.source, format.name);
    ChatOptions options = tokens(format.bos, format.eos);
    options.added_tokens = format.added_tokens;
    const Json messages = format.system ? with_system(kTurns) : kTurns;
    EXPECT_EQ(chat.render(messages, options), format.text);
    const RenderedChat training = chat.render_training(messages, options);
    EXPECT_EQ(training.text, format.text);
    EXPECT_EQ(learned(training), format.learned);
    options.add_generation_prompt = true;
    if (format.prompt) {
      EXPECT_EQ(chat.render(messages, options), std::string(format.text) + format.prompt);
    }
  }
}

TEST(ChatTemplate, RefusesWhatItCannotRunByLineAndName) {
  EXPECT_EQ(refusal("a\n{% include 'x' %}"),
            "chat_template.jinja line 2: this statement is not supported for chat templates; found include");
  EXPECT_EQ(
      refusal("{% for x in [] recursive %}{% endfor %}"),
      "chat_template.jinja line 1: recursive loops are not supported for chat templates; found recursive");
  EXPECT_EQ(refusal("\n\n{{ 1 | urlize }}"),
            "chat_template.jinja line 3: this filter is not supported for chat templates; found urlize");
  EXPECT_EQ(refusal("{{ 1 | nope }}"),
            "chat_template.jinja line 1: a filter must be one that Jinja knows; found nope");
  EXPECT_EQ(refusal("{% if 1 %}\n\n{% endfor %}"),
            "chat_template.jinja line 3: a tag must be one that Jinja knows here; found endfor");
  EXPECT_EQ(refusal("{{ 'a'.encode() }}"),
            "chat_template.jinja line 1: this attribute of the type str is not supported; found encode");
  EXPECT_EQ(refusal("{{ messages[0].nope\n.x }}"),
            "chat_template.jinja line 2: a value of the type dict has no attribute or item 'nope'; found .x");
  EXPECT_EQ(
      refusal("x\n{{ raise_exception('roles must alternate') }}"),
      "chat_template.jinja line 2: the chat template refuses the conversation; found roles must alternate");
  EXPECT_EQ(refusal("\xff"), "chat_template.jinja: a chat template must be UTF-8 text");
  EXPECT_EQ(refusal("{{ [].append(1) }}"),
            "chat_template.jinja line 1: a chat template must not change values: 'append' of a list; found a "
            "call of it");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const ChatTemplate chat("{{ messages }}", "t");
  EXPECT_EQ(message_of([&] { chat.render(Json::array(), {}); }), "t: a conversation must have a message");
  EXPECT_EQ(message_of([&] { chat.render(Json{1}, {}); }),
            "t line 1: a message must be an object; found number");
  EXPECT_EQ(message_of([&] {
              chat.render(Json::object({{"a", 1}}), {});
            }),
            "t line 1: messages must be a list; found object");
  EXPECT_THAT(message_of([&] { chat.render(Json::array({turn("user", "\xff")}), {}); }),
              HasSubstr("must be UTF-8"));
  Json deep = "x";
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_THAT(message_of([&] {
                chat.render(Json::array({{{"role", "user"}, {"content", deep}}}), {});
              }),
              HasSubstr("nest deeper than 100 levels"));
}

TEST(ChatTemplate, IsBounded) {
  const auto repeat = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const auto& [source, what] : std::vector<std::pair<std::string, const char*>>{
           {"{{ " + repeat("(", 100000) + repeat(")", 100000) + " }}", "nest deeper"},
           {"{{ " + repeat("not ", 100000) + "1 }}", "nest deeper"},
           {"{{ " + repeat("-", 100000) + "1 }}", "nest deeper"},
           {"{{ 1" + repeat(" + 1", 100000) + " }}", "nest deeper"},
           {"{{ x" + repeat("|list", 100000) + " }}", "nest deeper"},
           {repeat("{% if 1 %}", 100000), "nest deeper"},
           {repeat("x", 1 << 21), "at most"},
           {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nest deeper"},
           {"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "nest deeper"},
           {"{{ 'x' * 1000000000 }}", "MiB"},
           {"{{ 'x' * 9223372036854775807 }}", "MiB"},
           {"{{ 'a'.center(1000000000) }}", "MiB"},
           {"{{ '%1000000000d' % 1 }}", "width"},
           {"{{ 'a' | indent(1000000000) }}", "MiB"},
           {"{{ ['a'] | batch(1000000000, 'x') | list }}", "MiB"},
           {"{{ range(1000000000) | list }}", "range"},
           {"{{ 2 ** 100 }}", "64 bits"},
           {"{{ strftime_now('%9999d') }}", "too long"},
           {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
           {"{% set n = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
            "%}",
            "MiB"},
           {"{% set n = namespace(s='x' * 999999) %}{% for i in range(9999) %}{% set n.s = n.s|upper %}{% "
            "endfor %}",
            "must"},
           {"{% set n = namespace(s=1) %}{% for i in range(999) %}{% set n.s = [n.s] %}{% endfor %}",
            "nest deeper"},
           {"{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ "
            "n.s == n.s + [] }}",
            ""},
           {"{% set n = namespace(s=(1,)) %}{% for i in range(60) %}{% set n.s = (n.s, n.s) %}{% endfor %}{{ "
            "{n.s: 1} }}",
            "must"},
           {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "nest deeper"},
           {"{% set n = namespace(c=1) %}{% for i in range(9999) %}{% set n.c = cycler(n.c) %}{% endfor %}",
            "nest deeper"},
           {"{% set n = namespace(c=[1]) %}{% for i in range(9999) %}{% set n.c = n.c|map('int') %}{% endfor "
            "%}",
            "nest deeper"},
           {"{% set n = namespace(c=[1]) %}{% for i in range(9999) %}{% for x in [n.c] %}{% set n.c = loop "
            "%}{% endfor %}{% endfor %}",
            "nest deeper"},
       }) {
    const std::string message = refusal(source);
    EXPECT_THAT(message, HasSubstr(what)) << source.substr(0, 100);
    EXPECT_LT(message.size(), 400u);
  }
}

TEST(ChatTemplate, WhatHoldsItselfIsFreed) {  // as the leak checker of the asan preset sees
  for (const char* source :
       {"{% set n = namespace() %}{% set n.n = n %}",
        "{% set n = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set n.m = m %}",
        "{% set n = namespace() %}{% for x in [1, 2] %}{% set n.l = loop %}{{ loop.changed(loop) }}{% endfor "
        "%}",
        "{% set n = namespace() %}{% for x in [1, 2] if x %}{% set n.l = loop %}{% endfor %}{{ n.l.last }}",
        "{% macro m() %}{{ caller }}{% endmacro %}{% call m() %}{% endcall %}"})
    EXPECT_EQ(refusal(source), "no error");
}

TEST(ChatTemplate, TimeIsFixedWhereItIsGiven) {
  const ChatTemplate chat("{{ strftime_now('%Y-%m-%d %H:%M') }}", "t");
  ChatOptions options;
  options.now = 1700000000;
  EXPECT_EQ(chat.render(kTurns, options), "2023-11-14 22:13");
  options.now.reset();
  EXPECT_EQ(chat.render(kTurns, options).size(), 16u);
}

TEST(ChatTemplate, VariablesWinOverTokens) {
  ChatOptions options = tokens("<s>", "</s>");
  options.variables = {{"bos_token", "B"}, {"enable_thinking", false}};
  EXPECT_EQ(
      ChatTemplate("{{ bos_token }}{{ eos_token }}{{ enable_thinking }}{{ tools }}{{ pad_token is defined }}",
                   "t")
          .render(kTurns, options),
      "B</s>FalseNoneFalse");
}

TEST(LearnedRanges, ContentThatTheTemplateTrimsAndAppendsTo) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}{% if not loop.last %}<next>{% endif %}{% "
      "endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "t");
  const Json messages = {turn("user", "a"), turn("assistant", "  b "), turn("user", "c"),
                         turn("assistant", "d")};
  // Whether "<next>" ends a turn or starts one cannot be told.
  EXPECT_THAT(
      message_of([&] { chat.render_training(messages, {}); }),
      HasSubstr("t messages[1]: the assistant's part of the rendered conversation must be recognizable"));
}

TEST(LearnedRanges, AnswersOfToolsAndOfTwoTurnsInOne) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.name }}]{% "
      "endfor %}"
      "</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "t");
  Json call = turn("assistant", "");
  call["tool_calls"] = {{{"name", "f"}}};
  const RenderedChat rendered = chat.render_training(
      {turn("user", "a"), call, turn("tool", "1"), turn("assistant", "b"), turn("assistant", "c")}, {});
  EXPECT_EQ(rendered.text, "<user>a</><assistant>[f]</><tool>1</><assistant>b</><assistant>c</>");
  EXPECT_THAT(learned(rendered), ElementsAre("[f]</>", "b</>", "c</>"));
}

TEST(LearnedRanges, NeverAGuess) {
  const Json messages = {turn("user", "a"), turn("assistant", "b"), turn("user", "c"),
                         turn("assistant", "d")};
  const auto refused = [&](const char* source) {
    return message_of([&] { ChatTemplate(source, "t").render_training(messages, {}); });
  };
  // The answers stand before the questions.
  EXPECT_THAT(refused("{% for m in messages|reverse %}{{ m.content }};{% endfor %}"),
              HasSubstr("messages[1]"));
  // The content twice; not at all; changed as a whole.
  EXPECT_THAT(refused("{{ messages|length }}{% for m in messages %}{{ m.content ~ m.content }}{% endfor %}"),
              HasSubstr("exactly once"));
  EXPECT_THAT(refused("{{ messages|length }}{% for m in messages %}{{ m.role }}{% endfor %}"),
              HasSubstr("exactly once"));
  EXPECT_THAT(
      refused("{{ messages|length }}{% for m in messages %}{{ m.content|length ~ m.content }}{% endfor %}"),
      HasSubstr("changes the text around it"));
  // A part of the conversation is refused.
  EXPECT_THAT(
      refused("{% if messages|length < 4 %}{{ raise_exception('too short') }}{% endif %}{{ messages }}"),
      HasSubstr("too short"));
  // Generation blocks whose place is not known.
  EXPECT_THAT(refused("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m()|upper }}"),
              HasSubstr("generation"));
}

}  // namespace
}  // namespace meshloom::trainer
