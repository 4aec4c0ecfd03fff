#include "modelfile/chat_template.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "modelfile/chat_template_testutil.h"

namespace kvist {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path Golden() {
  return fs::path(KVIST_SOURCE_DIR) / "tests/golden/chat_template";
}

json::value ReadJson(const fs::path& path) {
  return json::parse(ReadFile(path));
}

std::string Scratch() {
  const ::testing::TestInfo& info = *::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(KVIST_BINARY_DIR) + "/" + info.test_suite_name() + "." + info.name() + ".json";
}

absl::StatusOr<std::string> Render(std::string_view source, json::object inputs = {}, ChatTemplateLimits limits = {}) {
  return RenderCase({"", std::string(source), std::move(inputs)}, limits);
}

std::string Python() {
  const char* set = std::getenv("KVIST_PYTHON");
  return set != nullptr ? set : "python3";
}

/// A command line of the oracle.
std::string Oracle(std::string_view command, const std::string& file) {
  std::string line = "'" + Python() + "' '" KVIST_SOURCE_DIR "/tools/render_template_oracle.py' ";
  line += command;
  if (!file.empty()) line += " '" + file + "'";
  return line;
}

bool HaveJinja2() {
  return std::system((Oracle("probe", "") + " 2>/dev/null").c_str()) == 0;
}

/// What jinja2 gives for each case: the text, or nullopt where it raises. `scratch` is a file name to use.
std::vector<std::optional<std::string>> RenderWithJinja2(const std::vector<TemplateCase>& cases,
                                                         const std::string& scratch) {
  json::array list;
  for (const TemplateCase& test : cases) {
    list.push_back({{"name", test.name}, {"template", test.source}, {"inputs", test.inputs}});
  }
  std::ofstream(scratch) << json::serialize(list);
  std::FILE* pipe = popen(Oracle("render", scratch).c_str(), "r");
  if (pipe == nullptr) return {};
  std::string output;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, got);
  EXPECT_EQ(pclose(pipe), 0);

  std::vector<std::optional<std::string>> results;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = output.find('\n', begin);
    if (end == std::string::npos) break;
    const json::object line = json::parse(output.substr(begin, end - begin)).as_object();
    const json::value* text = line.if_contains("text");
    results.push_back(text == nullptr ? std::nullopt : std::optional<std::string>(text->as_string()));
    begin = end + 1;
  }
  return results;
}

/// Python prints an address for objects without a text of their own.
bool ShowsAddress(const std::optional<std::string>& text) {
  return text.has_value() && text->find(" at 0x") != std::string::npos;
}

/// Renders every case both ways; the first few differences are reported.
void ExpectSameAsJinja2(const std::vector<TemplateCase>& cases) {
  const std::vector<std::optional<std::string>> expected = RenderWithJinja2(cases, Scratch());
  ASSERT_EQ(expected.size(), cases.size());
  int differences = 0;
  for (size_t i = 0; i < cases.size() && differences < 10; ++i) {
    if (ShowsAddress(expected[i])) continue;
    const absl::StatusOr<std::string> actual = RenderCase(cases[i]);
    if (actual.ok() == expected[i].has_value() && (!actual.ok() || *actual == *expected[i])) continue;
    ++differences;
    ADD_FAILURE() << cases[i].name << "\n"
                  << cases[i].source.substr(0, 1000) << "\njinja2: " << expected[i].value_or("(an error)")
                  << "\nkvist:  " << (actual.ok() ? *actual : std::string(actual.status().ToString()));
  }
}

// --- against jinja2 ---

TEST(ChatTemplateTest, RendersAllThatTheLanguageHasAsJinja2Does) {
  const json::value cases = ReadJson(Golden() / "cases.json");
  ASSERT_GT(cases.as_array().size(), 100u);
  for (const json::value& item : cases.as_array()) {
    const json::object& test = item.as_object();
    const std::string name(test.at("name").as_string());
    const auto actual = RenderCase({name, std::string(test.at("template").as_string()), test.at("inputs").as_object()});
    if (const json::value* expected = test.if_contains("expected")) {
      ASSERT_TRUE(actual.ok()) << name << ": " << actual.status();
      EXPECT_EQ(*actual, std::string(expected->as_string())) << name;
    } else {
      EXPECT_FALSE(actual.ok()) << name << " gives " << *actual << ", jinja2 says " << test.at("error").as_string();
    }
  }
}

TEST(ChatTemplateTest, RendersPublicTemplatesAsJinja2Does) {
  const char* set = std::getenv("KVIST_SHARED_DATA");
  const fs::path folder = fs::path(set != nullptr ? set : KVIST_SOURCE_DIR "/../shared/data") / "templates";
  if (!fs::exists(folder)) GTEST_SKIP() << "no folder " << folder;
  if (!HaveJinja2()) GTEST_SKIP() << "python3 has no jinja2";
  const json::value conversations = ReadJson(Golden() / "conversations.json");
  std::vector<TemplateCase> cases;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".jinja") continue;
    const std::string source = ReadFile(file.path());
    for (const json::value& conversation : conversations.at("conversations").as_array()) {
      for (const json::value& variant : conversations.at("variants").as_array()) {
        TemplateCase test;
        test.name = file.path().filename().string() + " " + std::string(conversation.at("name").as_string()) + " " +
                    std::string(variant.at("name").as_string());
        test.source = source;
        test.inputs = variant.at("inputs").as_object();
        test.inputs["messages"] = conversation.at("messages");
        test.inputs["now"] = 1'753'600'000;
        cases.push_back(std::move(test));
      }
    }
  }
  ASSERT_GT(cases.size(), 1000u);
  ExpectSameAsJinja2(cases);
}

TEST(ChatTemplateTest, RendersRandomTemplatesAsJinja2Does) {
  if (!HaveJinja2()) GTEST_SKIP() << "python3 has no jinja2";
  const char* count = std::getenv("KVIST_TEMPLATE_RANDOM_CASES");
  const char* seed = std::getenv("KVIST_TEMPLATE_RANDOM_SEED");
  const std::string command = std::string("'") + Python() + "' '" KVIST_SOURCE_DIR "/tools/random_templates.py' " +
                              (seed != nullptr ? seed : "1") + " " + (count != nullptr ? count : "600") + " '" +
                              Scratch() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::vector<TemplateCase> cases;
  const json::value list = ReadJson(Scratch());
  for (const json::value& item : list.as_array()) {
    cases.push_back({std::string(item.at("name").as_string()), std::string(item.at("template").as_string()),
                     item.at("inputs").as_object()});
  }
  ExpectSameAsJinja2(cases);
}

// --- inputs ---

TEST(ChatTemplateTest, SeesItsInputsAndExtraOverridesThem) {
  auto parsed =
      ChatTemplate::Parse("{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ add_generation_prompt }}{{ mode }}");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ChatTemplateInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "hi"}}};
  inputs.bos_token = "<s>";
  inputs.extra = {{"mode", "fast"}};
  EXPECT_EQ(parsed->Render(inputs).value(), "<s>hiNoneTruefast");
  inputs.add_generation_prompt = false;
  inputs.tools = json::array{1};
  EXPECT_EQ(parsed->Render(inputs).value(), "<s>hi[1]Falsefast");
  inputs.extra["bos_token"] = "";
  inputs.extra["messages"] = json::array{json::object{{"content", "over"}}};
  EXPECT_EQ(parsed->Render(inputs).value(), "over[1]Falsefast");
}

TEST(ChatTemplateTest, KeepsKeyOrderAndEveryJsonNumber) {
  const json::object inputs = {
      {"j", json::parse(R"({"z":1,"a":18446744073709551615,"m":-9223372036854775808,"f":1.0,"e":1e-7})")}};
  EXPECT_EQ(Render("{{ j | tojson }}", inputs).value(),
            R"({"z": 1, "a": 18446744073709551615, "m": -9223372036854775808, "f": 1.0, "e": 1e-07})");
}

TEST(ChatTemplateTest, InvalidUtf8InInputsPassesThroughAndInTheSourceIsAnError) {
  const std::string bad =
      "a\xFF\xC3"
      "b";
  EXPECT_EQ(Render("{{ x }}|{{ x | length }}|{{ x[1:3] }}|{{ x | upper }}", {{"x", bad}}).value(),
            bad +
                "|4|\xFF\xC3|A\xFF\xC3"
                "B");
  const auto parsed = ChatTemplate::Parse("ok\n {{ '\xFF' }}");
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("line 2, column 6"));
}

// --- errors ---

TEST(ChatTemplateTest, ErrorsNameLineAndColumn) {
  const struct {
    std::string_view source, message;
  } cases[] = {
      {"a\n{{ 1 +\n }}", "line 3, column 2: expected an expression, found '}}'"},
      {"{% if x %}\n  {% endfor %}", "line 2, column 6: unknown tag 'endfor'"},
      {"{% for x in y %}", "column 17: the template ends before '{% endfor %}'"},
      {"\n\n{% include 'x' %}", "line 3, column 4: the tag 'include' is not supported"},
      {"{{ x | nope }}", "line 1, column 8: there is no filter 'nope'"},
      {"ab {{ x.y }}", "line 1, column 8: 'x' is undefined"},
      {"{% set a = {} %}\n{{ a.b.c }}", "line 2, column 7: a dict has no attribute 'b'"},
      {"{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}{{ m() }}", "line 2, column 8: division by zero"},
      {"{{ 'a' + 1 }}", "'+' is not defined between str and int"},
      {"{{ '%0111111111111111111111111111111111111111111111d' % 1 }}", "a width in the format is too large"},
      {"{{ '%.99999999999999999999999999999999999999999999f' % 1 }}", "a width in the format is too large"},
      {"{{ 9 ** 99 }}", "an integer is too large"},
      {"{{ 99999999999999999999999999999999999999999 }}", "line 1, column 4: the number is too large"},
  };
  for (const auto& [source, message] : cases) {
    const auto result = Render(source);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(std::string(message))) << source;
  }
}

TEST(ChatTemplateTest, RaisedMessageIsPassedThroughAsItIs) {
  const auto result = Render("{% for m in messages %}{{ raise_exception('Rôle ' ~ m.role ~ ' unknown') }}{% endfor %}",
                             {{"messages", json::array{json::object{{"role", "x"}}}}});
  EXPECT_EQ(result.status(), absl::InvalidArgumentError("Rôle x unknown"));
}

TEST(ChatTemplateTest, SourceBeyondTheLimitIsRefused) {
  const auto parsed = ChatTemplate::Parse(std::string(2000, 'x'), {.source_bytes_max = 1999});
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("2000 bytes long"));
}

// --- sandbox ---

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatTemplateTest, HostileTemplatesEndInAnErrorSoon) {
  const std::string deep_list =
      "{% set ns = namespace(v=[]) %}{% for i in range(90000) %}{% set ns.v = [ns.v] %}{% endfor %}";
  const std::string wide =
      "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(90) %}{% set ns.a = (ns.a, ns.a) %}"
      "{% set ns.b = (ns.b, ns.b) %}{% endfor %}";
  const std::string loop = "{% for a in range(9999) %}", end = "{% endfor %}";
  const std::string loops = loop + loop + loop + end + end + end;
  const std::string sources[] = {
      "{{ 'a' * 10 ** 9 }}",
      "{{ [1] * 10 ** 12 }}",
      "{{ range(10 ** 9) }}",
      "{{ 10 ** 10 ** 10 }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      loops,
      "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m() %}{{ caller() }}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{% call m() %}{% endcall %}",
      deep_list,
      wide + "{{ ns.a == ns.b }}",
      wide + "{{ {ns.a: 1} }}",
      wide + "{{ ns.a }}",
      wide + "{{ ns.a | tojson }}",
      wide + "{{ ns.a < ns.b }}",
      "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}",
      "{{ 'x' | center(10 ** 10) }}",
      "{{ '%*d' % (10 ** 10, 1) }}",
      "{{ '{:9999999999}'.format(1) }}",
      "{{ '%.999999f' % 1.5 }}",
      "{{ ('a' * 9999).replace('', 'b' * 99999) }}",
      "{{ ('b' * 99999).join('a' * 9999) }}",
      "{{ range(99999) | join('b' * 99999) }}",
      "{{ ('a\n' * 9999) | indent(10 ** 9) }}",
      "{{ [1] | batch(10 ** 12, 1) | list }}",
      "{{ [1] | slice(10 ** 12) | list }}",
      "{{ [[[1]]] | tojson(indent=10 ** 9) }}",
      "{{ ('a' * 10 ** 7) | list | length }}{{ ('a' * 10 ** 7) | list | length }}",
      "{{ strftime_now('%9999999d') }}",
      "{{ " + Repeated("(", 5000) + "1" + Repeated(")", 5000) + " }}",
      "{{ " + Repeated("[", 5000) + Repeated("]", 5000) + " }}",
      "{{ " + Repeated("{1:", 5000) + "1" + Repeated("}", 5000) + " }}",
      "{{ " + Repeated("not ", 5000) + "1 }}",
      "{{ " + Repeated("- ", 5000) + "1 }}",
      "{{ x" + Repeated(".a", 5000) + " }}",
      "{{ x" + Repeated("()", 5000) + " }}",
      "{{ x" + Repeated("[x", 5000) + Repeated("]", 5000) + " }}",
      "{{ x" + Repeated(" | e", 5000) + " }}",
      "{{ x" + Repeated(" if x else x", 5000) + " }}",
      "{{ x" + Repeated(" ~ f(x", 5000) + Repeated(")", 5000) + " }}",
      Repeated("{% if x %}", 5000) + Repeated("{% endif %}", 5000),
      Repeated("{% for x in y %}", 5000) + Repeated("{% endfor %}", 5000),
      Repeated("{% macro m() %}", 5000) + Repeated("{% endmacro %}", 5000),
      "{% set " + Repeated("(", 5000) + "a" + Repeated(",)", 5000) + " = 1 %}",
      "{{ '" + Repeated("{:", 5000) + Repeated("}", 5000) + "'.format(1) }}",
  };
  for (const std::string& source : sources) {
    const auto result = Render(source);
    EXPECT_FALSE(result.ok()) << source.substr(0, 200) << "\ngives " << result->substr(0, 200);
  }
}

TEST(ChatTemplateTest, LimitsAreResourceExhausted) {
  const std::string loop = "{% for a in range(1000) %}{{ a }}{% endfor %}";
  EXPECT_TRUE(absl::IsResourceExhausted(Render(loop, {}, {.steps_max = 1000}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Render(loop, {}, {.output_bytes_max = 1000}).status()));
  EXPECT_EQ(Render(loop).value().size(), 2890u);
  const std::string recursion = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(20) }}";
  EXPECT_EQ(Render(recursion).value(), std::string(21, '.'));
  EXPECT_TRUE(absl::IsResourceExhausted(Render(recursion, {}, {.depth_max = 50}).status()));
}

TEST(ChatTemplateTest, LongChainsAreNotNesting) {
  EXPECT_EQ(Render("{{ 0" + Repeated(" + 1", 5000) + " }}").value(), "5000");
  EXPECT_EQ(Render("{{ ''" + Repeated(" ~ 'a'", 5000) + " }}").value().size(), 5000u);
  EXPECT_EQ(Render("{{ true" + Repeated(" and 1", 5000) + " }}").value(), "1");
  EXPECT_EQ(Render("{% if 0 %}" + Repeated("{% elif 0 %}x", 5000) + "{% else %}y{% endif %}").value(), "y");
}

TEST(ChatTemplateTest, InputNestedTooDeeplyIsAnError) {
  json::value nested = 1;
  for (int i = 0; i < 300; ++i) nested = json::array{std::move(nested)};
  const auto result = Render("{{ x }}", {{"x", std::move(nested)}});
  EXPECT_TRUE(absl::IsResourceExhausted(result.status()));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("input 'x'"));
}

// --- sharing ---

TEST(ChatTemplateTest, ThreadsMayRenderOneTemplateAtOnce) {
  const auto parsed = ChatTemplate::Parse(
      "{% set tail = 'é' ~ '!' %}{% macro m(x) %}<{{ x | upper ~ tail }}{{ 'é'[0] }}>{% endmacro %}"
      "{% for m_ in messages %}{{ m(m_.content) }}{% endfor %}");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        ChatTemplateInputs inputs;
        for (size_t k = 0; k <= t; ++k) inputs.messages.push_back(json::object{{"content", "ab"}});
        results[t] = parsed->Render(inputs).value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], Repeated("<ABé!é>", static_cast<int>(t) + 1));
}

// --- what fuzzing found ---

TEST(ChatTemplateTest, FuzzCorpusHoldsItsPromises) {
  int files = 0;
  for (const fs::directory_entry& file :
       fs::directory_iterator(fs::path(KVIST_SOURCE_DIR) / "tests/fuzz/chat_template")) {
    if (file.path().extension() == ".dict" || file.path().extension() == ".md") continue;
    RunTemplateFuzzInput(ReadFile(file.path()));
    ++files;
  }
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace kvist
