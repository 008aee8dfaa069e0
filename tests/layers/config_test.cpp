// The config tree: fields, text, paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers/config/tree.h"
#include "tests/message_of.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using tests::message_of;

struct Shape : Config {
  double area = 1;
  void fields(FieldVisitor& v) override { v("area", area); }
};
struct Circle : ConfigOf<Circle, Shape> {
  static constexpr std::string_view kName = "Circle";
  Required<std::int64_t> radius;
  std::optional<double> glow;
  void fields(FieldVisitor& v) override {
    Shape::fields(v);
    v("radius", radius);
    v("glow", glow);
  }
};
struct Square : ConfigOf<Square, Shape> {
  static constexpr std::string_view kName = "Square";
  Required<std::int64_t> side;
  void fields(FieldVisitor& v) override {
    Shape::fields(v);
    v("side", side);
  }
};
struct Paint : ConfigOf<Paint> {
  static constexpr std::string_view kName = "Paint";
  bool matt = false;
  void fields(FieldVisitor& v) override { v("matt", matt); }
};
struct Frame : ConfigOf<Frame, Shape> {
  static constexpr std::string_view kName = "Frame";
  Child<Shape> inner = Circle{};
  Child<Paint> paint;
  void fields(FieldVisitor& v) override {
    Shape::fields(v);
    v("inner", inner);
    v("paint", paint);
  }
};
struct Picture : ConfigOf<Picture> {
  static constexpr std::string_view kName = "Picture";
  std::string title = "none yet";
  bool framed = false;
  std::vector<std::int64_t> sizes = {1, 2};
  std::vector<std::string> tags;
  std::optional<std::string> note;
  Child<Shape> main = Circle{};
  std::vector<Child<Shape>> shapes;
  void fields(FieldVisitor& v) override {
    v("title", title);
    v("framed", framed);
    v("sizes", sizes);
    v("tags", tags);
    v("note", note);
    v("main", main);
    v("shapes", shapes);
  }
};

ClassTable table() {
  ClassTable classes;
  classes.add<Circle>();
  classes.add<Square>();
  classes.add<Frame>();
  classes.add<Paint>();
  classes.add<Picture>();
  return classes;
}

std::unique_ptr<Config> read(std::string_view text) { return parse(text, table(), "text"); }

Picture picture() {
  Circle circle;
  circle.radius = 3;
  Square square;
  square.side = 4;
  Frame frame;
  frame.inner = square;
  Picture p;
  p.main = circle;
  p.shapes = {Child<Shape>(square), Child<Shape>(frame)};
  return p;
}

TEST(Config, RequiredFieldReadBeforeItIsSetThrows) {
  Circle circle;
  EXPECT_FALSE(circle.radius.has_value());
  EXPECT_THROW(circle.radius.get(), Error);
  circle.radius = 2;
  EXPECT_EQ(circle.radius, 2);
}

TEST(Config, ValueSemantics) {
  Picture a = picture();
  Circle circle;
  circle.radius = 5;
  a.main = circle;
  circle.radius = 6;  // the tree keeps its own copy
  EXPECT_EQ(get(a, "main.radius"), "5");
  Picture b = a;
  b.main.as<Circle>()->radius = 7;
  b.shapes[1].as<Frame>()->inner->area = 9;
  b.sizes.push_back(3);
  EXPECT_EQ(get(a, "main.radius"), "5");
  EXPECT_EQ(get(a, "shapes[1].inner.area"), "1");
  EXPECT_EQ(get(a, "sizes"), "[1, 2]");
  const std::unique_ptr<Config> c = b.clone();
  set(*c, "main.radius", "8", table());
  EXPECT_EQ(get(b, "main.radius"), "7");
}

TEST(Config, Prints) {
  Picture p = picture();
  p.tags = {"a", "b \"c\"\n"};
  EXPECT_EQ(print(p), R"(Picture {
  title = "none yet"
  framed = false
  sizes = [1, 2]
  tags = ["a", "b \"c\"\n"]
  note = none
  main = Circle {
    area = 1
    radius = 3
    glow = none
  }
  shapes = [
    Square {
      area = 1
      side = 4
    },
    Frame {
      area = 1
      inner = Square {
        area = 1
        side = 4
      }
      paint = none
    },
  ]
}
)");
}

TEST(Config, TextRoundTripIsBitExact) {
  const double numbers[] = {0.1,
                            1e-05,
                            -0.0,
                            1.0 / 3,
                            5e-324,
                            1.7976931348623157e308,
                            std::numeric_limits<double>::infinity(),
                            123456789.125};
  for (const double number : numbers) {
    Picture p = picture();
    p.main->area = number;
    p.title = std::string("\x01 \\ \" # { } ü") + '\0' + "\t";
    p.note = "none";
    p.shapes.push_back(Circle{});
    const std::string text = print(p);
    const std::unique_ptr<Config> back = read(text);
    EXPECT_EQ(print(*back), text);
    EXPECT_EQ(std::signbit(dynamic_cast<Picture&>(*back).main->area), std::signbit(number));
    EXPECT_EQ(dynamic_cast<Picture&>(*back).main->area, number);
    EXPECT_EQ(dynamic_cast<Picture&>(*back).title, p.title);
    EXPECT_EQ(dynamic_cast<Picture&>(*back).note, "none");
  }
}

TEST(Config, ParseTakesCommentsCommasAndBareWords) {
  const auto config = read(
      "# a picture\nPicture{title=sunset, framed = true sizes=[3,\n4] # why\n"
      "  main = Square, shapes = [Circle{radius=2 area=5}, Square{},],}");
  EXPECT_EQ(get(*config, "title"), "\"sunset\"");
  EXPECT_EQ(get(*config, "sizes"), "[3, 4]");
  EXPECT_EQ(get(*config, "main.side"), "required");
  EXPECT_EQ(get(*config, "shapes[0].area"), "5");
}

TEST(Config, ParseErrorsNamePlaceRuleAndFinding) {
  const auto error = [](const char* text) { return message_of([&] { read(text); }); };
  EXPECT_EQ(error("Picture {\n  titel = \"x\"\n}"),
            "text:2: Picture has no field 'titel', did you mean 'title'? (it has title, framed, sizes, tags, "
            "note, main, "
            "shapes)");
  EXPECT_EQ(error("Pictur {}"), "text:1: there is no class 'Pictur', did you mean 'Picture'?");
  EXPECT_EQ(error("Circle { radius = 1.5 }"), "text:1: expected an integer for Circle.radius; found '1.5'");
  EXPECT_EQ(error("Circle { radius = \"1\" }"),
            "text:1: expected an integer for Circle.radius; found a string");
  EXPECT_EQ(error("Circle {\n\n radius = 99999999999999999999 }"),
            "text:3: an integer must fit 64 bits; found '99999999999999999999'");
  EXPECT_EQ(error("Circle { area = none }"), "text:1: expected a number for Circle.area; found 'none'");
  EXPECT_EQ(error("Circle { radius = none }"), "text:1: expected an integer for Circle.radius; found 'none'");
  EXPECT_EQ(error("Picture { framed = 1 }"), "text:1: expected true or false for Picture.framed; found '1'");
  EXPECT_EQ(error("Picture { main = Paint{} }"), "text:1: expected a Shape for Picture.main; found 'Paint'");
  EXPECT_EQ(error("Picture { shapes = [Paint{}] }"),
            "text:1: expected a Shape for Picture.shapes; found 'Paint'");
  EXPECT_EQ(error("Picture { main = Circle { radius = x } }"),
            "text:1: expected an integer for Circle.radius; found 'x'");
  EXPECT_EQ(error("Circle { radius = 1 radius = 2 }"),
            "text:1: a field must be given only once; found 'radius' again");
  EXPECT_EQ(error("Circle { radius 1 }"), "text:1: expected '=' after 'radius'; found '1'");
  EXPECT_EQ(error("Circle { radius = 1"),
            "text:1: expected a field of Circle, or '}'; found the end of the text");
  EXPECT_EQ(error("Circle {} Circle {}"), "text:1: expected nothing more; found 'Circle'");
  EXPECT_EQ(error(""), "text:1: expected a class; found the end of the text");
  EXPECT_EQ(error("Picture { title = \"x }"),
            "text:1: a string must end with '\"'; found the end of the text");
  EXPECT_EQ(error("Picture { title = \"\\q\" }"),
            "text:1: the escapes of a string are \\n, \\t, \\\", \\\\ and \\xNN; found \\q");
  EXPECT_EQ(error("Picture { sizes = [1 2] }"),
            "text:1: expected ',' or ']' in a list for Picture.sizes; found '2'");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Frame{inner=";
  EXPECT_THAT(error(deep.c_str()), HasSubstr("nest at most"));
}

TEST(Config, GetAndSetByPath) {
  Picture p = picture();
  const ClassTable classes = table();
  EXPECT_TRUE(set(p, "main.radius", "12", classes));
  EXPECT_FALSE(set(p, "main.radius", "12", classes));
  EXPECT_EQ(get(p, "main.radius"), "12");
  EXPECT_TRUE(set(p, "title", "two words", classes));
  EXPECT_EQ(p.title, "two words");
  EXPECT_TRUE(set(p, "title", "\"quoted\"", classes));
  EXPECT_EQ(p.title, "quoted");
  EXPECT_TRUE(set(p, "note", "x", classes));
  EXPECT_TRUE(set(p, "note", "none", classes));
  EXPECT_FALSE(p.note.has_value());
  EXPECT_TRUE(set(p, "shapes[1].inner", "Circle{radius=1}", classes));
  EXPECT_EQ(get(p, "shapes[1].inner.radius"), "1");
  EXPECT_TRUE(set(p, "shapes[0]", "Circle", classes));
  EXPECT_TRUE(set(p, "shapes", "[Square{side=1}]", classes));
  EXPECT_EQ(p.shapes.size(), 1u);
  EXPECT_TRUE(set(p, "sizes", "[]", classes));
  EXPECT_TRUE(p.sizes.empty());
  EXPECT_EQ(get(p, "main"), "Circle {\n  area = 1\n  radius = 12\n  glow = none\n}");
}

TEST(Config, PathErrors) {
  Picture p = picture();
  const ClassTable classes = table();
  const std::string before = print(p);
  const auto error = [&](const char* path, const char* text) {
    return message_of([&] { set(p, path, text, classes); });
  };
  EXPECT_EQ(
      error("main.radus", "1"),
      "path 'main.radus': Circle has no field 'radus', did you mean 'radius'? (it has area, radius, glow)");
  EXPECT_EQ(error("main.side", "1"),
            "path 'main.side': Circle has no field 'side' (it has area, radius, glow)");
  EXPECT_EQ(error("shapes[2]", "Circle"), "path 'shapes[2]': 'shapes' has 2 items");
  EXPECT_EQ(error("shapes.area", "1"), "path 'shapes.area': 'shapes' is a list; write shapes[number]");
  EXPECT_EQ(error("shapes[x].area", "1"), "path 'shapes[x].area': a list item is written name[number]");
  EXPECT_EQ(error("title.x", "1"), "path 'title.x': 'title' is a value and has no fields");
  EXPECT_EQ(error("main..radius", "1"), "path 'main..radius': names are separated by single dots");
  EXPECT_EQ(error("", "1"), "path '': names are separated by single dots");
  EXPECT_EQ(error("shapes[1].paint.matt", "true"),
            "path 'shapes[1].paint.matt': 'paint' is none and has no fields");
  EXPECT_EQ(error("main.radius", "x"), "main.radius: expected an integer for Circle.radius; found 'x'");
  EXPECT_EQ(error("main.radius", "1 2"), "main.radius: expected nothing more; found '2'");
  EXPECT_EQ(error("main", "Paint{}"), "main: expected a Shape for Picture.main; found 'Paint'");
  EXPECT_EQ(error("shapes", "[Circle{}, Paint{}]"),
            "shapes: expected a Shape for Picture.shapes; found 'Paint'");
  EXPECT_THROW(get(p, "nothing"), Error);
  EXPECT_EQ(print(p), before);  // a refused value changes nothing
}

TEST(Range, SaysWhatItTakes) {
  EXPECT_EQ(at_least(1).to_string(), "at least 1");
  EXPECT_EQ(above(0).to_string(), "above 0");
  EXPECT_EQ(between(0, 0.5).to_string(), "at least 0 and at most 0.5");
  EXPECT_EQ(below_one().to_string(), "at least 0 and below 1");
  EXPECT_EQ(positive_multiple_of(8).to_string(), "a multiple of 8 and at least 8");
  EXPECT_EQ(one_of("half", "whole", "").to_string(), "half, whole or \"\"");
  EXPECT_EQ((Range{.min = -1e-7, .max = 1e6}.to_string()), "at least -1e-7 and at most 1e6");
  EXPECT_EQ(Range{}.to_string(), "");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Range{}.has(nan));
  EXPECT_FALSE(at_least(0).has(nan));
  EXPECT_TRUE(at_least(0).has(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(below_one().has(0.0));
  EXPECT_FALSE(below_one().has(1.0));
  EXPECT_FALSE(above(0).has(0.0));
  EXPECT_TRUE(positive_multiple_of(8).has(16.0));
  EXPECT_FALSE(positive_multiple_of(8).has(12.0));
  EXPECT_TRUE(one_of("half", "").has(std::string_view()));
  EXPECT_FALSE(one_of("half", "").has(std::string_view("hal")));
}

TEST(Config, VisitsInOrder) {
  const Picture p = picture();
  std::vector<std::string> seen;
  visit(p, [&](const std::string& path, const Config& node) {
    seen.push_back(path + ":" + std::string(node.class_name()));
  });
  EXPECT_THAT(seen, ElementsAre(":Picture", "main:Circle", "shapes[0]:Square", "shapes[1]:Frame",
                                "shapes[1].inner:Square"));
}

TEST(Config, FlattensAndDiffs) {
  Picture p = picture();
  EXPECT_THAT(flatten(*p.shapes[1]),
              ElementsAre(Pair("area", "1"), Pair("inner", "Square"), Pair("inner.area", "1"),
                          Pair("inner.side", "4"), Pair("paint", "none")));
  Picture q = p;
  EXPECT_EQ(diff(p, q), "");
  q.framed = true;
  q.main = Square{};
  q.shapes.pop_back();
  EXPECT_EQ(diff(p, q),
            "-framed: false\n+framed: true\n-main: Circle\n+main: Square\n-main.radius: 3\n-main.glow: none\n"
            "+main.side: required\n-shapes[1]: Frame\n-shapes[1].area: 1\n-shapes[1].inner: Square\n"
            "-shapes[1].inner.area: 1\n-shapes[1].inner.side: 4\n-shapes[1].paint: none\n");
  EXPECT_EQ(diff(Circle{}, Circle{}), "");
  EXPECT_THAT(diff(Circle{}, Square{}), HasSubstr("-(root): Circle\n+(root): Square\n"));
}

TEST(Config, CompletenessListsEveryMissingField) {
  EXPECT_EQ(message_of([] { check_complete(picture()); }), "no error");
  Picture p = picture();
  p.main = Circle{};
  p.shapes.push_back(Square{});
  EXPECT_EQ(
      message_of([&] { check_complete(p); }),
      "config: every required field must be set; found unset: main.radius (Circle), shapes[2].side (Square)");
  p.main.as<Circle>()->radius = 1;
  p.shapes.pop_back();
  p.title = "required";  // a string is not a missing field
  EXPECT_EQ(message_of([&] { check_complete(p); }), "no error");
}

TEST(Config, ClassTable) {
  const ClassTable classes = table();
  EXPECT_EQ(classes.make("Square")->class_name(), "Square");
  EXPECT_THAT(classes.names(), ElementsAre("Circle", "Frame", "Paint", "Picture", "Square"));
  EXPECT_EQ(message_of([&] { classes.make("Sqare"); }),
            "config: there is no class 'Sqare', did you mean 'Square'?");
}

TEST(Config, FormerClassNamesAreReadAndNotPrinted) {
  ClassTable classes = table();
  classes.add_former_name("Disc", "Circle");
  EXPECT_EQ(classes.make("Disc")->class_name(), "Circle");
  EXPECT_TRUE(classes.has("Disc"));
  EXPECT_EQ(classes.current_name("Disc"), "Circle");
  EXPECT_EQ(classes.current_name("Circle"), "Circle");
  EXPECT_EQ(classes.current_name("Disk"), "Disk");
  EXPECT_THAT(classes.names(), ElementsAre("Circle", "Frame", "Paint", "Picture", "Square"));

  const std::string text = "Picture{main=Disc{radius=2} shapes=[Frame{inner=Disc{radius=3}}]}";
  std::unique_ptr<Config> picture = parse(text, classes, "old");
  EXPECT_THAT(print(*picture), Not(HasSubstr("Disc")));
  EXPECT_EQ(get(*picture, "main.radius"), "2");
  EXPECT_TRUE(set(*picture, "main", "Disc{radius=5}", classes));
  EXPECT_EQ(replace(*picture, "Disc", "Square{side=1}", classes).size(), 2u);
  EXPECT_EQ(replace(*picture, "Square", "Disc{radius=1}", classes).size(), 2u);
  EXPECT_EQ(get(*picture, "main"), "Circle {\n  area = 1\n  radius = 1\n  glow = none\n}");

  EXPECT_EQ(message_of([&] { parse("Disc{radios=1}", classes, "old"); }),
            "old:1: Circle has no field 'radios', did you mean 'radius'? (it has area, radius, glow)");
  EXPECT_EQ(message_of([&] { parse("Dics{}", classes, "old"); }), "old:1: there is no class 'Dics'");
  EXPECT_EQ(message_of([&] { classes.add_former_name("Square", "Circle"); }),
            "config: a former name must not be a name of another class; found 'Square'");
  EXPECT_EQ(message_of([&] { classes.add_former_name("Disc", "Square"); }),
            "config: a former name must not be a name of another class; found 'Disc'");
  EXPECT_EQ(message_of([&] { classes.add_former_name("Oval", "Ellipse"); }),
            "config: a former name must be that of a class in the table; found 'Oval' for 'Ellipse'");
}

TEST(Config, Suggests) {
  const std::vector<std::string> known = {"num_heads", "num_kv_heads", "RMSNorm"};
  EXPECT_EQ(suggestion("num_head", known), ", did you mean 'num_heads'?");
  EXPECT_EQ(suggestion("numb_heads", known), ", did you mean 'num_heads'?");
  EXPECT_EQ(suggestion("rmsnorm", known), ", did you mean 'RMSNorm'?");
  EXPECT_EQ(suggestion("dropout", known), "");
  EXPECT_EQ(suggestion("", known), "");
}

TEST(Config, TypeNamesAreReadable) {
  EXPECT_EQ(type_name<Config>(), "Config");
  EXPECT_THAT(std::string(type_name<Child<Paint>>()), HasSubstr("Paint"));
}

}  // namespace
}  // namespace meshloom::layers
