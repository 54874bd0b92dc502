// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/probe_map.h"

#include <gtest/gtest.h>
#include <re2/re2.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "loader/failure.h"

namespace hostrange {
namespace {

using Labels = std::map<std::string, std::string>;

const std::string kHead = "version = 1\n[targets.t]\nfiles = ['libt.so*']\n";  // three lines

std::string range(const std::string& fields) {
    return "[[ranges]]\n" + fields;
}

const std::string kRange = range("name = 'r'\ntarget = 't'\nfunctions = ['f']\n");  // lines 4 to 7 behind kHead

struct Refused {
    std::string text;
    std::string message;
};

void PrintTo(const Refused& refused, std::ostream* out) {
    *out << refused.text;
}

// a.a.a…: each dot is a table in a table.
std::string deep_key(std::size_t dots) {
    std::string key = "a";
    for (std::size_t i = 0; i < dots; ++i) key += i % 2 == 0 ? ".\"a\"" : " . 'a'";
    return key;
}

// Values in values as deep as toml++ lets them, each under a dotted key.
std::string deep_values() {
    constexpr std::size_t kDepth = 250, kDots = 16;
    std::string text;
    for (std::size_t i = 0; i < kDepth / 2; ++i) text += "{" + deep_key(kDots) + "=[\n";
    return deep_key(kDots) + "=[\n" + text;
}

class ProbeMapError : public testing::TestWithParam<Refused> {};

TEST_P(ProbeMapError, SaysWhereAndWhatIsAllowed) {
    try {
        parse_probe_map(GetParam().text, "m.toml");
        FAIL() << "no error, expected: " << GetParam().message;
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::kProbeMap);
        EXPECT_EQ(std::string(failure.what()), GetParam().message);
        EXPECT_FALSE(failure.hint().empty());
    }
}

const std::string kRootKeys = "allowed: version, targets, labels, ranges";
const std::string kRangeKeys =
    "allowed: name, target, functions, symbols, places, begin, end, inside, not_inside, labels, cold, return_probes, "
    "follow_tail_calls";

TEST(ProbeMapHint, RegularExpressionsGoIntoSingleQuotes) {
    try {
        parse_probe_map("version = 1\n[[ranges]]\nfunctions = [\"f\\(\"]\n", "m.toml");
        FAIL() << "no error";
    } catch (const Failure& failure) {
        EXPECT_NE(failure.hint().find("single quotes"), std::string::npos) << failure.what() << failure.hint();
    }
}

INSTANTIATE_TEST_SUITE_P(
    File, ProbeMapError,
    testing::Values(
        Refused{"", "m.toml:1:1: key 'version': missing: the probe map is empty"},
        Refused{"# nothing\n\n", "m.toml:1:1: key 'version': missing: the probe map is empty"},
        Refused{"[targets.t]\nfiles = ['x']\n" + kRange, "m.toml:1:1: key 'version': missing"},
        Refused{"version = 2\n", "m.toml:1:11: key 'version': unsupported version, allowed: 1"},
        Refused{"version = '1'\n", "m.toml:1:11: key 'version': not an integer, allowed: 1"},
        Refused{"version = 1\nverson = 1\n",
                "m.toml:2:1: key 'verson': unknown key (did you mean 'version'?), allowed: version, targets, labels, "
                "ranges"},
        Refused{"version = 1\nzzzzzz = 1\n",
                "m.toml:2:1: key 'zzzzzz': unknown key, allowed: version, targets, labels, ranges"},
        Refused{
            "version = 1\n" + std::string(4096, 'v') + " = 1\n",
            "m.toml:2:1: key '" + std::string(4096, 'v') + "': unknown key, allowed: version, targets, labels, ranges"},
        Refused{"version = 1\n[targets.lib\n",
                "m.toml:2:13: Error while parsing table header: expected ']', saw '\\n'"},
        Refused{"version = 1\n" + deep_key(1016) + " = 1\n", "m.toml:2:1: key 'a': unknown key, " + kRootKeys},
        Refused{"version = 1\n" + deep_key(1017) + " = 1\n",
                "m.toml:2:1: too many dots between names, up to this line"},
        Refused{deep_key(600) + " = 1\n[" + deep_key(600) + "]\n",
                "m.toml:2:1: too many dots between names, up to this line"},
        Refused{deep_key(1'000'000), "m.toml:1:1: too many dots between names, up to this line"},
        Refused{"version = 1\na = [1\nb = 2\n",
                "m.toml:3:1: Error while parsing array: expected comma or closing ']', saw 'b'"}));

INSTANTIATE_TEST_SUITE_P(
    Targets, ProbeMapError,
    testing::Values(
        Refused{"version = 1\n" + kRange, "m.toml:1:1: key 'targets': missing"},
        Refused{"version = 1\ntargets = 3\n", "m.toml:2:11: key 'targets': wrong type (integer), allowed: a table"},
        Refused{"version = 1\n[targets]\n", "m.toml:2:1: key 'targets': no target in it"},
        Refused{"version = 1\n[targets]\nt = 'x'\n",
                "m.toml:3:5: key 'targets.t': wrong type (string), allowed: a table"},
        Refused{"version = 1\n[targets.t]\n", "m.toml:2:1: key 'targets.t.files': missing"},
        Refused{"version = 1\n[targets.t]\nfile = ['x']\n",
                "m.toml:3:1: key 'targets.t.file': unknown key (did you mean 'files'?), allowed: files"},
        Refused{"version = 1\n[targets.t]\nfiles = 'x'\n",
                "m.toml:3:9: key 'targets.t.files': wrong type (string), allowed: array of strings"},
        Refused{"version = 1\n[targets.t]\nfiles = []\n",
                "m.toml:3:9: key 'targets.t.files': empty array, allowed: array of strings"},
        Refused{"version = 1\n[targets.t]\nfiles = ['x', 7]\n",
                "m.toml:3:15: key 'targets.t.files[1]': wrong type (integer), allowed: a string"},
        Refused{"version = 1\n[targets.t]\nfiles = ['']\n",
                "m.toml:3:10: key 'targets.t.files[0]': empty string, allowed: a string with something in it"},
        Refused{"version = 1\n[targets.t]\nfiles = ['/lib/x.so']\n",
                "m.toml:3:9: key 'targets.t.files': '/lib/x.so' has a folder in it"}));

INSTANTIATE_TEST_SUITE_P(
    Labels, ProbeMapError,
    testing::Values(
        Refused{
            kHead + "[labels.operater]\n" + kRange,
            "m.toml:4:9: key 'labels.operater': unknown key (did you mean 'operator'?), allowed: operator, backend, "
            "implementation"},
        Refused{"labels = 1\n" + kHead, "m.toml:1:10: key 'labels': wrong type (integer), allowed: a table"},
        Refused{kHead + "[labels]\nbackend = 1\n",
                "m.toml:5:11: key 'labels.backend': wrong type (integer), allowed: a table"},
        Refused{kHead + "[labels.backend]\nvalue = { }\n",
                "m.toml:5:1: key 'labels.backend.value': unknown key (did you mean 'values'?), allowed: values, "
                "snake_case"},
        Refused{kHead + "[labels.backend]\nvalues = ['cpu']\n",
                "m.toml:5:10: key 'labels.backend.values': wrong type (array), allowed: a table"},
        Refused{kHead + "[labels.backend]\nvalues = { '0' = 0 }\n",
                "m.toml:5:18: key 'labels.backend.values.0': wrong type (integer), allowed: a string"},
        Refused{kHead + "[labels.operator]\nsnake_case = 'yes'\n",
                "m.toml:5:14: key 'labels.operator.snake_case': wrong type (string), allowed: true, false"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, ProbeMapError,
    testing::Values(
        Refused{kHead, "m.toml:1:1: key 'ranges': missing"},
        Refused{"ranges = []\n" + kHead, "m.toml:1:10: key 'ranges': empty array, allowed: [[ranges]] tables"},
        Refused{kHead + "[ranges]\nname = 'r'\n",
                "m.toml:4:1: key 'ranges': wrong type (table), allowed: [[ranges]] tables"},
        Refused{"ranges = [1]\n" + kHead, "m.toml:1:11: key 'ranges[0]': wrong type (integer), allowed: a table"},
        Refused{kHead + range("name = \"a\\u001bb\"\n"), "m.toml:5:8: key 'ranges[0].name': it has control characters"},
        Refused{kHead + range("nmae = 'r'\n"),
                "m.toml:5:1: key 'ranges[0].nmae': unknown key (did you mean 'name'?), " + kRangeKeys},
        Refused{kHead + kRange + range("color = 'red'\n"),
                "m.toml:9:1: key 'ranges[1].color': unknown key (did you mean 'cold'?), " + kRangeKeys},
        Refused{kHead + range("target = 't'\n"), "m.toml:4:1: key 'ranges[0].name': missing"},
        Refused{kHead + range("name = 1\n"),
                "m.toml:5:8: key 'ranges[0].name': wrong type (integer), allowed: a string"},
        Refused{kHead + range("name = ''\n"),
                "m.toml:5:8: key 'ranges[0].name': empty string, allowed: a string with something in it"},
        Refused{kHead + kRange + kRange, "m.toml:9:8: key 'ranges[1].name': 'r' is the name of ranges[0] too"},
        Refused{kHead + range("name = 'r'\n"), "m.toml:4:1: key 'ranges[0].target': missing"},
        Refused{kHead + range("name = 'r'\ntarget = 1\n"),
                "m.toml:6:10: key 'ranges[0].target': wrong type (integer), allowed: a string, array of strings"},
        Refused{kHead + range("name = 'r'\ntarget = []\n"),
                "m.toml:6:10: key 'ranges[0].target': empty array, allowed: a string, array of strings"},
        Refused{kHead + range("name = 'r'\ntarget = 'x'\n"),
                "m.toml:6:10: key 'ranges[0].target': 'x' is no target (did you mean 't'?), allowed: t"},
        Refused{kHead + range("name = 'r'\ntarget = ['t', 'other']\n"),
                "m.toml:6:10: key 'ranges[0].target': 'other' is no target, allowed: t"},
        Refused{kHead + kRange + "cold = 1\n",
                "m.toml:8:8: key 'ranges[0].cold': wrong type (integer), allowed: true, false"},
        Refused{kHead + kRange + "return_probes = 'uprobe'\n",
                "m.toml:8:17: key 'ranges[0].return_probes': 'uprobe' is no way to see returns (did you mean "
                "'uretprobe'?), allowed: auto, ret, uretprobe"},
        Refused{kHead + kRange + "return_probes = true\n",
                "m.toml:8:17: key 'ranges[0].return_probes': wrong type (boolean), allowed: a string"},
        Refused{kHead + kRange + "labels = 'cpu'\n",
                "m.toml:8:10: key 'ranges[0].labels': wrong type (string), allowed: a table"},
        Refused{kHead + kRange + "labels = { colour = 'red' }\n",
                "m.toml:8:12: key 'ranges[0].labels.colour': unknown key, allowed: operator, backend, implementation"},
        Refused{kHead + kRange + "labels = { backend = 0 }\n",
                "m.toml:8:22: key 'ranges[0].labels.backend': wrong type (integer), allowed: a string"}));

const std::string kNamed = "name = 'r'\ntarget = 't'\n";

INSTANTIATE_TEST_SUITE_P(
    Functions, ProbeMapError,
    testing::Values(
        Refused{kHead + range(kNamed),
                "m.toml:4:1: key 'ranges[0].functions': missing, allowed: functions, symbols, places, begin with end"},
        Refused{kHead + range(kNamed + "functions = []\n"),
                "m.toml:7:13: key 'ranges[0].functions': empty array, allowed: array of regular expressions"},
        Refused{kHead + range(kNamed + "functions = 'f'\n"),
                "m.toml:7:13: key 'ranges[0].functions': wrong type (string), allowed: array of regular expressions"},
        Refused{kHead + range(kNamed + "functions = ['f',\n  4]\n"),
                "m.toml:8:3: key 'ranges[0].functions[1]': wrong type (integer), allowed: a string"},
        Refused{kHead + range(kNamed + "functions = ['f(']\n"),
                "m.toml:7:14: key 'ranges[0].functions[0]': bad regular expression 'f(': missing ): f("},
        Refused{
            kHead + range(kNamed + "functions = ['(?!f)']\n"),
            "m.toml:7:14: key 'ranges[0].functions[0]': bad regular expression '(?!f)': invalid perl operator: (?!"},
        Refused{kHead + range(kNamed + "functions = ['((x{500}){500}){500}']\n"),
                "m.toml:7:14: key 'ranges[0].functions[0]': bad regular expression '((x{500}){500}){500}': invalid "
                "repetition size: {500}"},
        Refused{kHead + range(kNamed + "functions = ['(?P<op>f)']\n"),
                "m.toml:7:14: key 'ranges[0].functions[0]': 'op' is no label, allowed: operator, backend, "
                "implementation"},
        Refused{kHead + range(kNamed + "symbols = []\n"),
                "m.toml:7:11: key 'ranges[0].symbols': empty array, allowed: array of strings"},
        Refused{kHead + range(kNamed + "symbols = [1]\n"),
                "m.toml:7:12: key 'ranges[0].symbols[0]': wrong type (integer), allowed: a string"}));

INSTANTIATE_TEST_SUITE_P(
    Points, ProbeMapError,
    testing::Values(
        Refused{kHead + range(kNamed + "begin = [{ entry = 'f' }]\n"), "m.toml:7:9: key 'ranges[0].end': missing"},
        Refused{kHead + range(kNamed + "end = [{ entry = 'f' }]\n"), "m.toml:7:7: key 'ranges[0].begin': missing"},
        Refused{kHead + kRange + "begin = [{ entry = 'f' }]\nend = [{ entry = 'g' }]\n",
                "m.toml:8:9: key 'ranges[0].begin': not together with functions, symbols or places, allowed: one or "
                "the other"},
        Refused{kHead + range(kNamed + "symbols = ['s']\nbegin = [{ entry = 'f' }]\nend = [{ entry = 'g' }]\n"),
                "m.toml:8:9: key 'ranges[0].begin': not together with functions, symbols or places, allowed: one or "
                "the other"},
        Refused{kHead + range(kNamed + "begin = []\nend = [{ entry = 'g' }]\n"),
                "m.toml:7:9: key 'ranges[0].begin': empty array, allowed: array of { entry = … }, { return = … } and { "
                "offset = …, instruction = … }"},
        Refused{kHead + range(kNamed + "begin = ['f']\nend = [{ entry = 'g' }]\n"),
                "m.toml:7:10: key 'ranges[0].begin[0]': wrong type (string), allowed: a table"},
        Refused{kHead + range(kNamed + "begin = [{ enter = 'f' }]\nend = [{ entry = 'g' }]\n"),
                "m.toml:7:12: key 'ranges[0].begin[0].enter': unknown key (did you mean 'entry'?), allowed: entry, "
                "return, offset, instruction"},
        Refused{kHead + range(kNamed + "begin = [{ entry = 'f', return = 'f' }]\nend = [{ entry = 'g' }]\n"),
                "m.toml:7:10: key 'ranges[0].begin[0]': not one point, allowed: either entry, or return, or offset"},
        Refused{kHead + range(kNamed + "begin = [{ }]\nend = [{ entry = 'g' }]\n"),
                "m.toml:7:10: key 'ranges[0].begin[0]': not one point, allowed: either entry, or return, or offset"},
        Refused{kHead + range(kNamed + "begin = [{ entry = 'f' }]\nend = [{ return = '[' }]\n"),
                "m.toml:8:19: key 'ranges[0].end[0].return': bad regular expression '[': missing ]: ["}));

std::string named_range(const std::string& name, const std::string& not_inside) {
    return range("name = '" + name + "'\ntarget = 't'\nfunctions = ['f']\nnot_inside = " + not_inside + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    NotInside, ProbeMapError,
    testing::Values(
        Refused{kHead + named_range("a", "[]"),
                "m.toml:8:14: key 'ranges[0].not_inside': empty array, allowed: array of strings"},
        Refused{kHead + named_range("a", "'b'"),
                "m.toml:8:14: key 'ranges[0].not_inside': wrong type (string), allowed: array of strings"},
        Refused{kHead + kRange + named_range("outer", "['outr']"),
                "m.toml:12:14: key 'ranges[1].not_inside': 'outr' is no range (did you mean 'outer'?), allowed: r, "
                "outer"},
        Refused{kHead + named_range("a", "['b']") + named_range("b", "['a']"),
                "m.toml:8:14: key 'ranges[0].not_inside': a circle: following not_inside from 'a' never ends"},
        Refused{kHead + kRange + named_range("a", "['r', 'b']") + named_range("b", "['a']"),
                "m.toml:12:14: key 'ranges[1].not_inside': a circle: following not_inside from 'a' never ends"}));

TEST(ProbeMap, RefusesMoreRangesThanItsLimit) {
    constexpr std::size_t kTooMany = 65536;
    std::string text = kHead;
    for (std::size_t i = 0; i < kTooMany; ++i) {
        text += range("name = 'r" + std::to_string(i) + "'\ntarget = 't'\nsymbols = ['s']\n");
    }
    try {
        parse_probe_map(text, "m.toml");
        FAIL();
    } catch (const Failure& failure) {
        EXPECT_STREQ(failure.what(), "m.toml:4:1: key 'ranges': 65536 ranges, allowed: at most 65535");
    }
}

TEST(ProbeMap, RefusesTextThatIsNoToml) {
    for (const std::string& text :
         {std::string("\0\0", 2), std::string("\xff\xfe"), std::string("version = 1\nversion = 1\n"),
          std::string(100000, '['), "a = " + std::string(100000, '['), std::string("a = \"")}) {
        EXPECT_THROW(parse_probe_map(text, "m.toml"), Failure) << text.substr(0, 40);
    }
}

TEST(ProbeMap, RefusesFilesThatCannotBeRead) {
    for (const auto& [path, reason] : std::map<std::string, std::string>{
             {"/does/not/exist", "No such file or directory"}, {"/", "Is a directory"}}) {
        try {
            load_probe_map(path);
            FAIL() << path;
        } catch (const Failure& failure) {
            EXPECT_EQ(failure.what(), path + ": the probe map cannot be read: " + reason);
            EXPECT_EQ(failure.code(), ExitCode::kProbeMap);
        }
    }
}

TEST(ProbeMap, ReadsEveryKey) {
    const ProbeMap map = parse_probe_map(R"(
version = 1
[targets.one]
files = ["libone.so*", "one-?.so"]
[targets.two]
files = ["two"]
[labels.operator]
snake_case = true
[labels.backend]
values = { "0" = "cpu" }
[[ranges]]
name = "late"
target = ["one", "two"]
functions = ['^a(?P<operator>\w+)(b)(?P<backend>\d)', 'plain']
symbols = ["_ZN*"]
not_inside = ["between"]
labels = { implementation = "0" }
cold = true
return_probes = "uretprobe"
[[ranges]]
name = "between"
target = "two"
begin = [{ entry = 'f' }, { return = 'g' }]
end = [{ return = 'h' }]
return_probes = "ret"
)",
                                         "m.toml");
    EXPECT_EQ(map.path, "m.toml");
    ASSERT_EQ(map.targets.size(), 2u);
    EXPECT_EQ(map.find_target("one")->file_patterns, (std::vector<std::string>{"libone.so*", "one-?.so"}));
    EXPECT_EQ(map.find_target("three"), nullptr);
    EXPECT_TRUE(map.labels.at("operator").snake_case);

    ASSERT_EQ(map.ranges.size(), 2u);
    const RangeDefinition& late = map.ranges[0];
    EXPECT_EQ(late.targets, (std::vector<std::string>{"one", "two"}));
    ASSERT_EQ(late.functions.size(), 2u);
    EXPECT_EQ(late.functions[0].label_names, (std::vector<std::string>{"operator", "", "backend"}));
    EXPECT_EQ(late.functions[1].text, "plain");
    EXPECT_EQ(late.symbols, std::vector<std::string>{"_ZN*"});
    EXPECT_EQ(late.not_inside, std::vector<std::string>{"between"});
    EXPECT_EQ(late.labels, (Labels{{"implementation", "0"}}));
    EXPECT_TRUE(late.cold);
    EXPECT_EQ(late.return_probes, ReturnProbes::kUretprobe);
    EXPECT_FALSE(late.is_point_to_point());

    const RangeDefinition& between = map.ranges[1];
    EXPECT_TRUE(between.is_point_to_point());
    ASSERT_EQ(between.begin.size(), 2u);
    EXPECT_EQ(between.begin[0].kind, Point::Kind::kEntry);
    EXPECT_EQ(between.begin[1].kind, Point::Kind::kReturn);
    EXPECT_EQ(between.end.at(0).function.text, "h");
    EXPECT_FALSE(between.cold);
    EXPECT_EQ(between.return_probes, ReturnProbes::kRet);
}

TEST(ProbeMap, NeedsNoLabelsAndDefaultsToAuto) {
    const ProbeMap map = parse_probe_map(kHead + kRange, "m.toml");
    EXPECT_TRUE(map.labels.empty());
    EXPECT_EQ(map.ranges.at(0).return_probes, ReturnProbes::kAuto);
    EXPECT_EQ(label_value(map, "operator", "RmsNorm"), "RmsNorm");
}

TEST(ProbeMap, MatchesFilesByGlob) {
    const ProbeMap map =
        parse_probe_map("version = 1\n[targets.a]\nfiles = ['liba.so*']\n[targets.b]\nfiles = ['*.so']\n" +
                            range("name = 'r'\ntarget = 'a'\nfunctions = ['f']\n"),
                        "m.toml");
    const auto names = [&](const char* file) {
        std::string result;
        for (const TargetDefinition* target : targets_of_file(map, file)) result += target->name;
        return result;
    };
    EXPECT_EQ(names("liba.so"), "ab");
    EXPECT_EQ(names("liba.so.1.2"), "a");
    EXPECT_EQ(names("x.so"), "b");
    EXPECT_EQ(names("xliba.so.1"), "");
    EXPECT_EQ(names(""), "");
}

TEST(ProbeMap, ReadsWhatLoadReads) {
    const std::string path = testing::TempDir() + "probe_map_test_" + std::to_string(getpid()) + ".toml";
    std::ofstream(path) << kHead << kRange;
    EXPECT_EQ(load_probe_map(path).path, path);
    std::ofstream(path).flush();
    EXPECT_THROW(load_probe_map(path), Failure);  // empty
    unlink(path.c_str());
}

// --- the default map ---

const ProbeMap& default_map() {
    static const ProbeMap map = load_probe_map(HOSTRANGE_SOURCE_DIR "/probe_map.toml");
    return map;
}

TEST(DefaultMap, HasTheTenRanges) {
    std::vector<std::string> names, cold, between;
    for (const RangeDefinition& range : default_map().ranges) {
        names.push_back(range.name);
        if (range.cold) cold.push_back(range.name);
        if (range.is_point_to_point()) between.push_back(range.name);
        EXPECT_EQ(range.targets, (std::vector<std::string>{"infiniops", "miniops"})) << range.name;
        EXPECT_NE(range.return_probes, ReturnProbes::kUretprobe) << range.name << ": would abort a target that throws";
    }
    EXPECT_EQ(names, (std::vector<std::string>{"binding.body", "binding.tensor_conversion", "binding.device_conversion",
                                               "dispatch.call", "operator.call", "cache.key", "cache.lookup",
                                               "cache.construct", "operator.invoke", "backend.submit"}));
    EXPECT_EQ(cold, std::vector<std::string>{"cache.construct"});
    EXPECT_EQ(between, (std::vector<std::string>{"cache.key", "cache.lookup"}));
    EXPECT_EQ(default_map().ranges[2].not_inside, std::vector<std::string>{"binding.tensor_conversion"});
}

TEST(DefaultMap, FindsTheFiles) {
    for (const char* name : {"libinfiniops.so", "libinfiniops.so.1", "libminiops.so", "ops.abi3.so",
                             "ops.cpython-311-x86_64-linux-gnu.so"}) {
        EXPECT_FALSE(targets_of_file(default_map(), name).empty()) << name;
    }
    for (const char* name : {"libinfinirt.so", "libc.so.6", "python3.11", "_ops.cpython-311-x86_64-linux-gnu.so"}) {
        EXPECT_TRUE(targets_of_file(default_map(), name).empty()) << name;
    }
}

TEST(DefaultMap, NamesOperatorsAsTheLibrariesDo) {
    for (const auto& [text, value] : Labels{{"RmsNorm", "rms_norm"},
                                            {"GEMM", "gemm"},
                                            {"Add", "add"},
                                            {"Conv2dBias", "conv2d_bias"},
                                            {"Conv2DBias", "conv2d_bias"},
                                            {"Conv2D", "conv2d"},
                                            {"RMSNorm", "rms_norm"},
                                            {"TopKTopPSampler", "top_k_top_p_sampler"},
                                            {"SiLUAndMul", "si_lu_and_mul"},
                                            {"C2c", "c2c"},
                                            {"already_snake", "already_snake"},
                                            {"linalg::LuSolve", "linalg_lu_solve"},
                                            {"LinalgLuSolve", "linalg_lu_solve"},
                                            {"internal::fft::C2r", "internal_fft_c2r"},
                                            {"", ""}}) {
        EXPECT_EQ(label_value(default_map(), "operator", text), value) << text;
    }
    EXPECT_EQ(label_value(default_map(), "backend", "1"), "nvidia");
    EXPECT_EQ(label_value(default_map(), "backend", "9"), "mars");
    EXPECT_EQ(label_value(default_map(), "backend", "99"), "99");
    EXPECT_EQ(label_value(default_map(), "implementation", "16"), "16");
}

// All that matches a demangled name: "range label=value …", and for the points of a range "range begin entry" and so
// on.
std::vector<std::string> matches(const std::string& name) {
    std::vector<std::string> result;
    const auto labels_of = [&](const FunctionPattern& pattern, std::string& text) {
        const int groups = pattern.expression->NumberOfCapturingGroups();
        std::vector<re2::StringPiece> found(groups + 1);
        const re2::RE2& expression = *pattern.expression;
        if (!expression.Match(name, 0, name.size(), RE2::UNANCHORED, found.data(), groups + 1)) return false;
        for (int group = 1; group <= groups; ++group) {
            const std::string& label = pattern.label_names[group - 1];
            if (label.empty()) continue;
            text += " " + label + "=" + label_value(default_map(), label, std::string(found[group]));
        }
        return true;
    };
    for (const RangeDefinition& range : default_map().ranges) {
        for (const FunctionPattern& pattern : range.functions) {
            std::string text = range.name;
            if (labels_of(pattern, text)) result.push_back(text);
        }
        for (const auto& [where, points] : {std::pair{" begin", &range.begin}, std::pair{" end", &range.end}}) {
            for (const Point& point : *points) {
                std::string text = range.name + where + (point.kind == Point::Kind::kEntry ? " entry" : " return");
                if (labels_of(point.function, text)) result.push_back(text);
            }
        }
    }
    return result;
}

struct Expected {
    std::string name;
    std::vector<std::string> matches;
};

// Names as g++ 12 and clang 14 make them, read off stock builds with nm.
TEST(DefaultMap, FindsTheRangesAndTheirLabels) {
    const std::string add = "infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)10, 0ul>";
    const std::string mini = "miniops::Operator<miniops::RmsNorm, (miniops::rt::Device::Type)10, 0ul>";
    const std::string handle = "infini::ops::Handle const&, infini::ops::Config const&";
    const std::string body =
        "infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, pybind11::object, double, "
        "pybind11::object, "
        "unsigned long, std::optional<unsigned long>)#6}::operator()(pybind11::object, pybind11::object, double, "
        "pybind11::object, unsigned long, std::optional<unsigned long>) const";
    const std::string mini_body =
        "miniops::Bind<miniops::Gemm>(pybind11::module_&)::{lambda(pybind11::handle, pybind11::handle, "
        "pybind11::handle, "
        "pybind11::handle, unsigned long, unsigned long)#2}::operator()(pybind11::handle, pybind11::handle, "
        "pybind11::handle, pybind11::handle, unsigned long, unsigned long) const";
    const std::vector<std::string> construct = {"cache.lookup end entry operator=add", "cache.construct operator=add"};
    const std::vector<std::string> invoke = {"cache.lookup end entry operator=add", "operator.invoke operator=add"};
    const std::vector<Expected> table = {
        {body + " [clone .constprop.0] [clone .isra.0]", {"binding.body operator=add"}},
        {body + " [clone .constprop.0] [clone .isra.0] [clone .cold]", {"binding.body operator=add"}},
        {"infini::ops::BindLinalgLuSolve(pybind11::module_&)::$_6::operator()(pybind11::object, unsigned long, "
         "std::optional<unsigned long>) const",
         {"binding.body operator=linalg_lu_solve"}},
        {mini_body, {"binding.body operator=gemm"}},
        {mini_body + " [clone .constprop.0]", {"binding.body operator=gemm"}},

        {"infini::ops::detail::TensorFromPybind11HandleImpl(pybind11::handle)", {"binding.tensor_conversion"}},
        {"miniops::detail::TensorFromPybind11HandleImpl(pybind11::handle) [clone .cold]",
         {"binding.tensor_conversion"}},
        {"infini::ops::detail::DeviceFromPybind11HandleImpl(pybind11::handle)", {"binding.device_conversion"}},

        {"infini::ops::generated_dispatch::CallAdd(" + handle + ", infini::rt::TensorView, infini::rt::TensorView)",
         {"dispatch.call operator=add"}},
        {"void infini::ops::generated_dispatch::Call<infini::ops::Add>(" + handle + ", infini::rt::TensorView)",
         {"dispatch.call operator=add"}},
        {"miniops::generated_dispatch::CallRmsNorm(miniops::Handle const&, miniops::Config const&, miniops::Tensor "
         "const&, std::optional<miniops::Tensor> const&, float const&, miniops::Tensor const&)",
         {"dispatch.call operator=rms_norm"}},

        {"void " + add + "::Call<infini::rt::TensorView, double>(" + handle +
             ", infini::rt::TensorView const&, double const&)",
         {"operator.call operator=add", "cache.key begin entry operator=add"}},
        {"void " + mini +
             "::Call<miniops::Tensor>(miniops::Handle const&, miniops::Config const&, miniops::Tensor "
             "const&)",
         {"operator.call operator=rms_norm", "cache.key begin entry operator=rms_norm"}},
        {"void infini::ops::Operator<infini::ops::linalg::LuSolve, (infini::rt::Device::Type)10, 0ul>::Call<int>(" +
             handle + ", int const&)",
         {"operator.call operator=linalg_lu_solve", "cache.key begin entry operator=linalg_lu_solve"}},

        {"void infini::ops::detail::TraceOperatorCall<infini::ops::Add>(infini::ops::detail::CacheKey const&, "
         "infini::ops::Config const&)",
         {"cache.key end entry operator=add", "cache.lookup begin return operator=add"}},

        {"std::unique_ptr<" + add + ", std::default_delete<" + add + " > > " + add +
             "::Make<infini::rt::TensorView const&>(infini::ops::Config const&, infini::rt::TensorView, "
             "infini::rt::TensorView const&)",
         construct},
        {"std::unique_ptr<" + add + ", std::default_delete<" + add + " > > " + add +
             "::MakeWithDevice<infini::rt::TensorView const&>(infini::ops::Config const&, infini::rt::Device::Type, "
             "infini::rt::TensorView const&)",
         construct},
        {"std::unique_ptr<" + mini + ", std::default_delete<" + mini + " > > " + mini +
             "::MakeWithDevice<miniops::Tensor, float>(miniops::rt::Device, miniops::Config const&, miniops::Tensor "
             "const&, float const&)",
         {"cache.lookup end entry operator=rms_norm", "cache.construct operator=rms_norm"}},

        {"void " + add +
             "::operator()<infini::rt::TensorView, double>(infini::rt::TensorView const&, double const&) const",
         invoke},
        {"void " + add + "::operator()<double>(infini::ops::Handle const&, double const&)",
         {"cache.lookup end entry operator=add"}},

        {"infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, "
         "0ul>::operator()(infini::rt::TensorView, "
         "infini::rt::TensorView, double, infini::rt::TensorView) const",
         {"backend.submit operator=add backend=cpu implementation=0"}},
        {"infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)1, "
         "16ul>::operator()(infini::rt::TensorView,"
         " std::optional<infini::rt::TensorView>, std::optional<float>) const",
         {"backend.submit operator=gemm backend=nvidia implementation=16"}},
        {"infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)11, 2ul>::operator()(int) const",
         {"backend.submit operator=gemm backend=11 implementation=2"}},
        {"miniops::Operator<miniops::Mul, (miniops::rt::Device::Type)0, 0ul>::operator()(miniops::Tensor const&, "
         "miniops::Tensor const&, miniops::Tensor const&) const",
         {"backend.submit operator=mul backend=cpu implementation=0"}},
        {"infini::ops::CudaAddRmsNorm<infini::ops::Runtime<(infini::rt::Device::Type)4> >::operator()("
         "infini::rt::TensorView) const",
         {"backend.submit operator=add_rms_norm backend=metax"}},
        {"infini::ops::BlasGemm<infini::ops::Blas<(infini::rt::Device::Type)1> >::operator()(infini::rt::TensorView) "
         "const",
         {"backend.submit operator=gemm backend=nvidia"}},
        {"infini::ops::triton::jit::Add<(infini::rt::Device::Type)1>::operator()(infini::rt::TensorView) const",
         {"backend.submit operator=add backend=nvidia"}},
    };
    for (const Expected& expected : table) EXPECT_EQ(matches(expected.name), expected.matches) << expected.name;
}

TEST(DefaultMap, LeavesWhatOnlyLooksLikeARange) {
    const std::string lambda =
        "infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, unsigned long, std::optional<unsigned "
        "long>)#7}";
    const std::string submit =
        "infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, 0ul>::operator()(infini::rt::TensorView) "
        "const";
    const std::string all = "infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)10, 0ul>";
    for (const std::string& name : std::vector<std::string>{
             "infini::ops::BindAdd(pybind11::module_&)",
             "infini::ops::BindAdd(pybind11::module_&) [clone .cold]",
             lambda + "::_FUN(pybind11::object, unsigned long, std::optional<unsigned long>)",
             "infini::ops::BindAdd(pybind11::module_&)::$_0::__invoke(pybind11::object, unsigned long, "
             "std::optional<unsigned long>)",
             // Builds an operator object for Python.
             "infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, double)#1}::operator()("
             "pybind11::object, double) const [clone .constprop.0]",
             "infini::ops::BindAdd(pybind11::module_&)::{lambda(std::string const&)#5}::operator()(std::string const&) "
             "const",
             lambda + "::operator()(pybind11::object, unsigned long, std::optional<unsigned long>) const::{lambda("
                      "unsigned long, std::optional<unsigned long>)#1}::operator()(unsigned long, "
                      "std::optional<unsigned long>) const",
             "infini::ops::BindAdd(pybind11::module_&)::$_0::operator()(unsigned long, unsigned long) "
             "const::$_1::operator()(unsigned long, unsigned long) const",
             "pybind11::cpp_function::initialize<" + lambda + ", void, pybind11::object, unsigned long>(" + lambda +
                 "&&, void (*)(pybind11::object, unsigned long))::{lambda(pybind11::detail::function_call&)#1}::_FUN("
                 "pybind11::detail::function_call&)",
             "std::_Function_handler<void (pybind11::object), " + lambda + ">::_M_invoke(std::_Any_data const&)",
             "infini::ops::detail::DataTypeFromPybind11HandleImpl(pybind11::handle)",
             "infini::ops::detail::TensorFromPybind11HandleImpl(pybind11::handle)::{lambda()#1}::operator()() const",
             "other::detail::TensorFromPybind11HandleImpl(pybind11::handle)",
             "infini::ops::generated_dispatch::MakeAdd(infini::ops::Config const&, infini::rt::TensorView)",
             "infini::ops::generated_dispatch::InvokeAdd(infini::ops::Add const&, infini::rt::TensorView)",
             "infini::ops::generated_dispatch::ClearCacheForAdd()",
             // Forwards to the overload with a handle; counting both would count each call twice.
             "void " + all + "::Call<int>(infini::rt::TensorView, int const&)",
             "auto " + all +
                 "::Call<int>(infini::ops::Handle const&, infini::ops::Config const&, int const&)::{lambda("
                 "auto:1)#1}::operator()<int>(int) const",
             "guard variable for void " + all +
                 "::Call<int>(infini::ops::Handle const&, infini::ops::Config const&, "
                 "int const&)::cache",
             "void " + all + "::Call<int>(infini::ops::Handle const&, infini::ops::Config const&, int const&)::cache",
             all + "::DefaultImplementationIndex(infini::rt::Device::Type)",
             all + "::~Operator()",
             "infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)0, "
             "0ul>::Operator(infini::rt::TensorView, "
             "infini::rt::TensorView)",
             "infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)0, 0ul>::~Operator()",
             all + "::operator()(infini::rt::TensorView) const",
             "std::unique_ptr<" + all + ", std::default_delete<" + all + " > > " + all +
                 "::Make<int>(infini::rt::TensorView, int&&)",
             "std::__detail::_MakeUniq<infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, 0ul> "
             ">::__single_object std::make_unique<infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, "
             "0ul>, int const&>(int const&)",
             "std::unique_ptr<" + all + ", std::default_delete<" + all + " > >::~unique_ptr()",
             submit + " [clone ._omp_fn.0]",
             submit + "::{lambda(int)#1}::operator()(int) const",
             submit + "::Local::run() const",
             "auto " + submit +
                 "::{lambda(auto:1)#1}::operator()<infini::ops::TypeTag<int> >(infini::ops::TypeTag<int>) "
                 "const [clone .isra.0]",
             "void infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, 0ul>::Compute<int>(int) const "
             "[clone ._omp_fn.0]",
             "infini::ops::Gemm::operator()(infini::rt::TensorView) const",
             "non-virtual thunk to " + submit,
             "_ZN7miniops10ClearCacheEv",
             "",
         }) {
        EXPECT_EQ(matches(name), std::vector<std::string>{}) << name;
    }
}

// What is let through must not end the stack; inline tables end with their line, so the values are arrays of them.
TEST(ProbeMap, ReadsTheDeepestTablesThatItLetsThrough) {
    EXPECT_THROW(parse_probe_map(deep_values() + deep_key(1000) + "=1", "m.toml"), Failure);
    EXPECT_THROW(parse_probe_map(deep_values(), "m.toml"), Failure);
}

}  // namespace
}  // namespace hostrange
