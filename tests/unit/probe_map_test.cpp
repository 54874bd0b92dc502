// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/probe_map.h"

#include <gtest/gtest.h>
#include <re2/re2.h>

#include <algorithm>

#include "loader/failure.h"

namespace hostrange {
namespace {

const std::string kHead = "version = 1\n[targets.lib]\nfiles = [\"lib*.so\"]\n";

std::string range_with(const std::string& lines) {
    return kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nfunctions = ['^f\\(']\n" + lines;
}

struct Wrong {
    std::string name, text, position, message, hint;
};

std::ostream& operator<<(std::ostream& stream, const Wrong& wrong) { return stream << wrong.name; }

class WrongMap : public testing::TestWithParam<Wrong> {};

TEST_P(WrongMap, SaysWhereAndWhatIsAllowed) {
    const Wrong& wrong = GetParam();
    try {
        parse_probe_map(wrong.text, "map.toml");
        FAIL() << "was taken for right";
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::kProbeMap);
        EXPECT_EQ(std::string(failure.what()).rfind("map.toml:" + wrong.position + ":", 0), 0u) << failure.what();
        EXPECT_NE(std::string(failure.what()).find(wrong.message), std::string::npos) << failure.what();
        EXPECT_NE(failure.hint().find(wrong.hint), std::string::npos) << failure.hint();
    }
}

INSTANTIATE_TEST_SUITE_P(
    Maps, WrongMap,
    testing::Values(
        Wrong{"Empty", "", "1:1", "'version' is missing", "version = 1"},
        Wrong{"Syntax", "version = 1\n[targets.lib\n", "2:13", "", "TOML"},
        Wrong{"Version", "version = 2\n", "1:11", "key 'version'", "allowed: 1"},
        Wrong{"VersionText", "version = \"1\"\n", "1:11", "key 'version'", "allowed: 1"},
        Wrong{"UnknownTopKey", "version = 1\ntarget = 1\n", "2:1", "did you mean 'targets'", "version, targets, labels"},
        Wrong{"NoTargets", "version = 1\n", "1:1", "key 'targets'", "[targets.mine]"},
        Wrong{"TargetWithoutFiles", "version = 1\n[targets.lib]\n", "2:1", "'files' is missing", "files ="},
        Wrong{"TargetUnknownKey", kHead + "file = 1\n", "4:1", "'targets.lib.file'", "files"},
        Wrong{"FilesEmpty", "version = 1\n[targets.lib]\nfiles = []\n", "3:9", "'targets.lib.files'", "for instance"},
        Wrong{"FilesOfNumbers", "version = 1\n[targets.lib]\nfiles = [1]\n", "3:10", "'targets.lib.files[0]'", "quotes"},
        Wrong{"NoRanges", kHead, "1:1", "key 'ranges'", "docs/probe-map.md"},
        Wrong{"RangeWithoutName", kHead + "[[ranges]]\ntarget = \"lib\"\nfunctions = ['f']\n", "4:1", "'name' is missing",
              ""},
        Wrong{"RangeWithoutTarget", kHead + "[[ranges]]\nname = \"a\"\nfunctions = ['f']\n", "4:1", "'target' is missing",
              ""},
        Wrong{"RangeUnknownTarget", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"bil\"\nfunctions = ['f']\n", "6:10",
              "there is no target 'bil'", "lib"},
        Wrong{"RangeWithoutFunctions", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\n", "4:1", "either 'functions'",
              ""},
        Wrong{"RangeUnknownKey", range_with("colt = true\n"), "8:1", "did you mean 'cold'", "return_probes"},
        Wrong{"BadExpression", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nfunctions = ['g', 'f(']\n", "7:19",
              "'ranges[0].functions[1]': the regular expression 'f(' is wrong: missing )", "RE2"},
        Wrong{"UnknownGroup", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nfunctions = ['(?P<op>.)']\n", "7:14",
              "'op' is no label", "operator, backend, implementation"},
        Wrong{"TwoRangesOfOneName", range_with("[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nfunctions = ['g']\n"), "8:1",
              "there are two ranges 'a'", ""},
        Wrong{"BeginWithoutEnd", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nbegin = [{ entry = 'f' }]\n", "4:1",
              "'begin' and 'end' go together", ""},
        Wrong{"FunctionsAndPoints", range_with("begin = [{ entry = 'f' }]\nend = [{ return = 'f' }]\n"), "4:1", "either",
              ""},
        Wrong{"PointOfNoKind", kHead + "[[ranges]]\nname = \"a\"\ntarget = \"lib\"\nbegin = [{ exit = 'f' }]\nend = []\n",
              "7:12", "'ranges[0].begin[0].exit' is not known", "entry, return"},
        Wrong{"UnknownNotInside", range_with("not_inside = [\"b\"]\n"), "8:14", "there is no range 'b'", "a"},
        Wrong{"NotInsideItself", range_with("not_inside = [\"a\"]\n"), "8:14", "out of itself", ""},
        Wrong{"ReturnProbes", range_with("return_probes = \"fast\"\n"), "8:17", "'fast' is not known",
              "auto, ret, uretprobe"},
        Wrong{"ColdText", range_with("cold = \"yes\"\n"), "8:8", "true or false", ""},
        Wrong{"LabelName", kHead + "[labels.colour]\nsnake_case = true\n", "4:1", "'colour' is no label", "operator"},
        Wrong{"LabelKey", kHead + "[labels.operator]\nsnake = true\n", "5:1", "'labels.operator.snake'", "snake_case"},
        Wrong{"FixedLabel", range_with("labels = { color = \"x\" }\n"), "8:20", "'color' is no label", "operator"}),
    [](const auto& info) { return info.param.name; });

TEST(ProbeMap, ReadsEverything) {
    const ProbeMap map = parse_probe_map(
        kHead +
            "[labels.backend]\nvalues = { \"0\" = \"cpu\" }\n[labels.operator]\nsnake_case = true\n"
            "[[ranges]]\nname = \"outer\"\ntarget = [\"lib\"]\nfunctions = ['^(?P<operator>\\w+)<(\\d)>::f\\(', 'g']\n"
            "symbols = [\"_ZN*\"]\nlabels = { backend = \"cpu\" }\ncold = true\nreturn_probes = \"uretprobe\"\n"
            "[[ranges]]\nname = \"inner\"\ntarget = \"lib\"\nbegin = [{ entry = 'a' }, { return = 'b' }]\n"
            "end = [{ entry = 'c' }]\nnot_inside = [\"outer\"]\n",
        "map.toml");
    ASSERT_EQ(map.ranges.size(), 2u);
    const RangeDefinition& outer = map.ranges[0];
    EXPECT_EQ(outer.targets, std::vector<std::string>{"lib"});
    ASSERT_EQ(outer.functions.size(), 2u);
    EXPECT_EQ(outer.functions[0].label_names, (std::vector<std::string>{"operator", ""}));
    EXPECT_EQ(outer.symbols, std::vector<std::string>{"_ZN*"});
    EXPECT_EQ(outer.labels.at("backend"), "cpu");
    EXPECT_TRUE(outer.cold);
    EXPECT_EQ(outer.return_probes, ReturnProbes::kUretprobe);
    EXPECT_FALSE(outer.is_point_to_point());
    const RangeDefinition& inner = map.ranges[1];
    ASSERT_TRUE(inner.is_point_to_point());
    EXPECT_EQ(inner.begin[0].kind, Point::Kind::kEntry);
    EXPECT_EQ(inner.begin[1].kind, Point::Kind::kReturn);
    EXPECT_EQ(inner.not_inside, std::vector<std::string>{"outer"});
    EXPECT_EQ(inner.return_probes, ReturnProbes::kAuto);

    EXPECT_EQ(label_value(map, "backend", "0"), "cpu");
    EXPECT_EQ(label_value(map, "backend", "7"), "7");
    EXPECT_EQ(label_value(map, "implementation", "3"), "3");
    for (const auto& [text, expected] : std::map<std::string, std::string>{
             {"Add", "add"}, {"RmsNorm", "rms_norm"}, {"GEMM", "gemm"}, {"Conv2dBias", "conv2d_bias"},
             {"SiLUAndMul", "si_lu_and_mul"}, {"mul", "mul"}}) {
        EXPECT_EQ(label_value(map, "operator", text), expected);
    }
}

TEST(ProbeMap, FilesByGlob) {
    const ProbeMap map = parse_probe_map(range_with(""), "map.toml");
    EXPECT_EQ(targets_of_file(map, "libx.so").size(), 1u);
    EXPECT_TRUE(targets_of_file(map, "libx.so.1").empty());
    EXPECT_TRUE(targets_of_file(map, "").empty());
}

TEST(ProbeMap, MissingFile) {
    try {
        load_probe_map("/nowhere/map.toml");
        FAIL();
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.code(), ExitCode::kProbeMap);
        EXPECT_NE(std::string(failure.what()).find("/nowhere/map.toml"), std::string::npos);
    }
}

// Names as g++ 12 makes them in stock builds, and what the default map must say of them.
struct Name {
    std::string range;  // empty: none
    std::string name;
    std::string operator_name = "", backend = "", implementation = "";
};

TEST(DefaultMap, KnowsStockNames) {
    const ProbeMap map = load_probe_map(HOSTRANGE_SOURCE_DIR "/probe_map.toml");
    const std::string add10 = "infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)10, 0ul>";
    const std::string view = "infini::rt::TensorView";
    const std::string pointer = "std::unique_ptr<" + add10 + ", std::default_delete<" + add10 + "> >";
    const std::vector<Name> names = {
        {"binding.body",
         "infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, pybind11::object, pybind11::object, unsigned "
         "long, std::optional<unsigned long>)#7}::operator()(pybind11::object, pybind11::object, pybind11::object, "
         "unsigned long, std::optional<unsigned long>) const [clone .constprop.0] [clone .isra.0]",
         "Add"},
        {"binding.body",
         "miniops::Bind<miniops::RmsNorm>(pybind11::module_&)::{lambda(pybind11::handle, float, unsigned long, unsigned "
         "long)#1}::operator()(pybind11::handle, float, unsigned long, unsigned long) const",
         "RmsNorm"},
        // Constructs an operator object.
        {"",
         "infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, pybind11::object, "
         "pybind11::object)#2}::operator()(pybind11::object, pybind11::object, pybind11::object) const [clone "
         ".constprop.0]"},
        {"",
         "pybind11::cpp_function::initialize<infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, unsigned "
         "long)#7}, void>(infini::ops::BindAdd(pybind11::module_&)::{lambda(pybind11::object, unsigned long)#7}&&)::"
         "{lambda(pybind11::detail::function_call&)#3}::_FUN(pybind11::detail::function_call&)"},
        {"", "infini::ops::BindAdd(pybind11::module_&)"},
        {"binding.tensor_conversion", "infini::ops::detail::TensorFromPybind11HandleImpl(pybind11::handle)"},
        {"binding.device_conversion", "infini::ops::detail::DeviceFromPybind11HandleImpl(pybind11::handle)"},
        {"", "infini::ops::detail::DataTypeFromPybind11HandleImpl(pybind11::handle)"},
        {"dispatch.call",
         "infini::ops::generated_dispatch::CallAdd(infini::ops::Handle const&, infini::ops::Config const&, " + view + ")",
         "Add"},
        {"", "infini::ops::generated_dispatch::MakeAdd(infini::ops::Config const&, " + view + ")"},
        {"", "infini::ops::generated_dispatch::ClearCacheForAdd()"},
        {"operator.call",
         "void " + add10 + "::Call<" + view + ">(infini::ops::Handle const&, infini::ops::Config const&, " + view +
             " const&)",
         "Add"},
        {"cache.construct",
         pointer + " " + add10 + "::Make<" + view + " const&>(infini::ops::Config const&, " + view + ")", "Add"},
        {"cache.construct",
         pointer + " " + add10 + "::MakeWithDevice<" + view + " const&>(infini::rt::Device, " + view + ")", "Add"},
        {"", pointer + "::~unique_ptr()"},
        {"operator.invoke", "void " + add10 + "::operator()<" + view + ">(" + view + " const&) const", "Add"},
        {"backend.submit",
         "infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)1, 2ul>::operator()(" + view +
             ", std::optional<float>) const",
         "Gemm", "1", "2"},
        {"",
         "auto infini::ops::Operator<infini::ops::Add, (infini::rt::Device::Type)0, 0ul>::operator()(" + view +
             ", double) const::{lambda(auto:1)#1}::operator()<infini::ops::TypeTag<float> >(infini::ops::TypeTag<float>) "
             "const [clone .isra.0]"},
        {"", "infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)0, 0ul>::~Operator()"},
        {"",
         "infini::ops::Operator<infini::ops::Gemm, (infini::rt::Device::Type)0, 0ul>::Operator(" + view + ", " + view +
             ")"},
    };
    for (const Name& one : names) {
        std::string range;
        std::map<std::string, std::string> labels;
        for (const RangeDefinition& definition : map.ranges) {
            for (const FunctionPattern& pattern : definition.functions) {
                const int groups = pattern.expression->NumberOfCapturingGroups();
                std::vector<re2::StringPiece> texts(groups + 1);
                if (!pattern.expression->Match(one.name, 0, one.name.size(), RE2::UNANCHORED, texts.data(), groups + 1)) {
                    continue;
                }
                EXPECT_EQ(range, "") << one.name;
                range = definition.name;
                for (int i = 0; i < groups; ++i) {
                    if (!pattern.label_names[i].empty()) labels[pattern.label_names[i]] = std::string(texts[i + 1]);
                }
            }
        }
        EXPECT_EQ(range, one.range) << one.name;
        EXPECT_EQ(labels["operator"], one.operator_name) << one.name;
        EXPECT_EQ(labels["backend"], one.backend) << one.name;
        EXPECT_EQ(labels["implementation"], one.implementation) << one.name;
    }
}

TEST(DefaultMap, HasEveryRangeOfInfiniOps) {
    const ProbeMap map = load_probe_map(HOSTRANGE_SOURCE_DIR "/probe_map.toml");
    std::vector<std::string> names;
    for (const RangeDefinition& range : map.ranges) names.push_back(range.name);
    EXPECT_EQ(names, (std::vector<std::string>{"binding.body", "binding.tensor_conversion", "binding.device_conversion",
                                               "dispatch.call", "operator.call", "cache.key", "cache.lookup",
                                               "cache.construct", "operator.invoke", "backend.submit"}));
    EXPECT_EQ(targets_of_file(map, "libinfiniops.so").size(), 1u);
    EXPECT_FALSE(targets_of_file(map, "ops.cpython-311-x86_64-linux-gnu.so").empty());
    EXPECT_TRUE(targets_of_file(map, "libc.so.6").empty());
}

}  // namespace
}  // namespace hostrange
