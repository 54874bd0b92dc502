// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/plan.h"

#include <gtest/gtest.h>
#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "loader/probes/elf_file.h"
#include "loader/probes/symbol_matching.h"

namespace hostrange {
namespace {

const std::string kFunctions = "libfixture_functions.so";
const std::string kLibrary = "libfixture_library.so";
constexpr int kDamageRounds = 300;

FunctionPattern pattern(const std::string& text) {
    FunctionPattern result;
    result.text = text;
    auto expression = std::make_shared<re2::RE2>(text);
    result.label_names.resize(expression->NumberOfCapturingGroups());
    for (const auto& [group, name] : expression->CapturingGroupNames()) result.label_names[group - 1] = name;
    result.expression = std::move(expression);
    return result;
}

// One range that looks into all fixtures.
RangeDefinition range(const std::string& name, const std::vector<std::string>& patterns,
                      const std::vector<std::string>& symbols = {}) {
    RangeDefinition result;
    result.name = name;
    result.targets = {"fixtures"};
    for (const std::string& text : patterns) result.functions.push_back(pattern(text));
    result.symbols = symbols;
    return result;
}

ProbeMap map_of(std::vector<RangeDefinition> ranges) {
    ProbeMap map;
    map.targets = {{"fixtures", {"libfixture_*.so"}}, {"others", {"libother.so*"}}};
    map.ranges = std::move(ranges);
    return map;
}

MappedFile mapped(const std::string& base_name) {
    MappedFile file;
    file.base_name = base_name;
    file.path = "/seen/by/the/process/" + base_name;
    file.open_path = HOSTRANGE_FIXTURES "/" + base_name;
    file.identity = {1, 2};
    return file;
}

constexpr KernelNops kKernel = {.optimises_nop5 = true, .emulates_all = true};

PlanSettings settings(ReturnProbes returns = ReturnProbes::kAuto) {
    PlanSettings result;
    result.return_probes = returns;
    result.kernel = kKernel;
    return result;
}

FilePlan plan(const ProbeMap& map, const std::string& base_name, ReturnProbes returns = ReturnProbes::kAuto) {
    FilePlan result = plan_file(map, mapped(base_name), settings(returns));
    // What holds for every plan.
    std::set<std::tuple<SiteKind, std::uint64_t, std::uint32_t, unsigned>> seen;
    std::set<std::uint64_t> entries;
    for (const Site& site : result.sites) {
        EXPECT_TRUE(seen.insert({site.kind, site.file_offset, site.range, site.level}).second) << site.instruction.text;
        EXPECT_LT(site.function, result.functions.size());
        EXPECT_EQ(site.range, result.functions.at(site.function).range);
        EXPECT_TRUE(site.kind != SiteKind::kEntry || entries.insert(site.file_offset).second);
        EXPECT_TRUE(!site.on_return || site.stack_adjust == -8);
        EXPECT_TRUE((site.kind != SiteKind::kRet && site.kind != SiteKind::kTailJump) || site.stack_adjust == 0);
        EXPECT_EQ(site.stack_adjust % 8, 0);
        EXPECT_TRUE(!site.continues || site.kind == SiteKind::kTailJump);
    }
    return result;
}

const PlannedFunction* function_named(const FilePlan& plan, const std::string& symbol) {
    const auto found = std::find_if(plan.functions.begin(), plan.functions.end(),
                                    [&](const PlannedFunction& function) { return function.symbol == symbol; });
    return found == plan.functions.end() ? nullptr : &*found;
}

// The kinds of a function's sites, in order; a tail jump that goes on in capitals.
std::string kinds(const FilePlan& plan, const std::string& symbol) {
    const PlannedFunction* function = function_named(plan, symbol);
    if (function == nullptr) return "not planned";
    std::string text;
    for (const Site& site : plan.sites) {
        if (&plan.functions[site.function] != function) continue;
        if (!text.empty()) text += " ";
        switch (site.kind) {
            case SiteKind::kEntry:
                text += "entry";
                break;
            case SiteKind::kRet:
                text += "ret";
                break;
            case SiteKind::kTailJump:
                text += site.continues ? "JUMP" : "jump";
                break;
            case SiteKind::kReturn:
                text += "return";
                break;
            case SiteKind::kCalleeEnd:
                text += site.continues ? "CALLEE" : "callee";
                break;
            case SiteKind::kInlinedEntry:
                text += "inlined";
                break;
            case SiteKind::kInlinedEnd:
                text += "left";
                break;
            case SiteKind::kBegin:
                text += "begin";
                break;
            case SiteKind::kEnd:
                text += "end";
                break;
            case SiteKind::kCatch:
                text += "catch";
                break;
        }
    }
    return text;
}

std::string note(const FilePlan& plan, const std::string& symbol) {
    const PlannedFunction* function = function_named(plan, symbol);
    return function == nullptr ? "not planned" : function->note;
}

std::string reason(const FilePlan& plan, const std::string& name) {
    for (const Unavailable& unavailable : plan.unavailable)
        if (unavailable.symbol == name) return unavailable.reason;
    return "";
}

TEST(Plan, NamesTheFileAsTheProcessDoes) {
    const FilePlan result = plan(map_of({range("a", {"^one_ret$"})}), kFunctions);
    EXPECT_EQ(result.path, "/seen/by/the/process/" + kFunctions);
    EXPECT_EQ(result.open_path, HOSTRANGE_FIXTURES "/" + kFunctions);
    EXPECT_EQ(result.identity, (FileIdentity{1, 2}));
    EXPECT_EQ(result.build_id.size(), 40u);
    EXPECT_FALSE(result.stripped);
    EXPECT_EQ(result.problem, "");
    EXPECT_TRUE(result.has_range_sites());
}

TEST(Plan, LooksOnlyIntoFilesOfTheTarget) {
    ProbeMap map = map_of({range("a", {"^one_ret$"})});
    map.ranges[0].targets = {"others"};
    const FilePlan result = plan(map, kFunctions);
    EXPECT_TRUE(result.functions.empty());
    EXPECT_FALSE(result.has_range_sites());
}

TEST(Plan, SaysWhyAFileCannotBeRead) {
    const FilePlan result = plan(map_of({range("a", {"x"})}), "libfixture_missing.so");
    EXPECT_NE(result.problem.find("No such file"), std::string::npos);
}

TEST(Plan, PlacesEntriesAndEnds) {
    const FilePlan result =
        plan(map_of({range("a", {"^(every_ret|ret_and_jump|with_cold_part|with_handler)$"})}), kFunctions);
    EXPECT_EQ(kinds(result, "every_ret"), "entry ret ret ret ret");
    EXPECT_EQ(kinds(result, "ret_and_jump"), "entry ret callee JUMP");
    EXPECT_EQ(note(result, "ret_and_jump"), "");
    EXPECT_EQ(kinds(result, "with_cold_part"), "entry ret ret");
    EXPECT_EQ(kinds(result, "with_handler"), "entry ret ret");
    EXPECT_EQ(note(result, "with_handler"), "");
    EXPECT_TRUE(result.unavailable.empty());
    // Offsets are those of the instructions in the file.
    std::ifstream file(HOSTRANGE_FIXTURES "/" + kFunctions, std::ios::binary);
    for (const Site& site : result.sites) {
        if (site.kind != SiteKind::kTailJump) continue;
        file.seekg(static_cast<std::streamoff>(site.file_offset));
        EXPECT_EQ(file.get(), 0xeb);
    }
}

TEST(Plan, TakesUretprobesOnlyWhereAsked) {
    ProbeMap map = map_of({range("a", {"^every_ret$"}), range("b", {"^ret_and_jump$"}), range("c", {"^one_ret$"})});
    map.ranges[1].return_probes = ReturnProbes::kUretprobe;
    map.ranges[2].return_probes = ReturnProbes::kRet;
    const FilePlan safe = plan(map, kFunctions);
    EXPECT_EQ(kinds(safe, "every_ret"), "entry ret ret ret ret");
    // The jump ends nothing; it tells that what comes next runs in the frame of this scope.
    EXPECT_EQ(kinds(safe, "ret_and_jump"), "entry return JUMP");
    const FilePlan cheap = plan(map, kFunctions, ReturnProbes::kUretprobe);
    EXPECT_EQ(kinds(cheap, "every_ret"), "entry return");
    EXPECT_EQ(kinds(cheap, "one_ret"), "entry ret");
}

TEST(Plan, FollowsTailJumpsIntoProbedFunctions) {
    const std::string jumps = "^(one_jump|jump_through_plt|jump_through_got|jump_through_lazy_plt|jump_virtual)$";
    // A function of this file that is not probed lends its ends, unless the map says otherwise.
    ProbeMap unfollowed = map_of({range("a", {jumps})});
    unfollowed.ranges[0].follow_tail_calls = false;
    const FilePlan alone = plan(unfollowed, kFunctions);
    EXPECT_EQ(kinds(alone, "one_jump"), "entry jump");
    EXPECT_EQ(note(alone, "one_jump"), "it ends at its tail jump to elsewhere");
    const FilePlan followed = plan(map_of({range("a", {jumps})}), kFunctions);
    EXPECT_EQ(kinds(followed, "one_jump"), "entry callee JUMP");
    EXPECT_EQ(note(followed, "one_jump"), "");
    EXPECT_EQ(kinds(followed, "jump_through_plt"), "entry jump");
    EXPECT_EQ(kinds(alone, "jump_through_plt"), "entry jump");
    EXPECT_EQ(note(alone, "jump_through_plt"), "it ends at its tail jump to imported_function");
    EXPECT_EQ(kinds(alone, "jump_virtual"), "entry jump");
    EXPECT_NE(note(alone, "jump_virtual").find("computed at run time"), std::string::npos);

    // Where nothing has a name any more, a part that throws must not look like a return.
    const FilePlan unnamed = plan(map_of({range("a", {"^jump_to_unnamed"})}), kFunctions);
    EXPECT_EQ(kinds(unnamed, "jump_to_unnamed"), "entry callee JUMP ret");
    EXPECT_EQ(kinds(unnamed, "jump_to_unnamed_that_throws"), "entry ret");

    // The callee is in this file, or in another one that some range of the map names.
    ProbeMap map = map_of({range("a", {jumps}), range("b", {"^elsewhere$", "^imported_f"})});
    const FilePlan both = plan(map, kFunctions);
    EXPECT_EQ(kinds(both, "one_jump"), "entry JUMP");
    EXPECT_EQ(kinds(both, "elsewhere"), "entry ret");
    EXPECT_EQ(kinds(both, "jump_through_plt"), "entry JUMP");
    EXPECT_EQ(kinds(both, "jump_through_got"), "entry JUMP");
    EXPECT_EQ(kinds(both, "jump_through_lazy_plt"), "entry jump");
    EXPECT_EQ(kinds(both, "jump_virtual"), "entry jump");
    EXPECT_EQ(note(both, "jump_through_plt"), "");
}

TEST(Plan, DoesNotFollowTailJumpsIntoFunctionsThatCannotBeProbed) {
    // `elsewhere` matches, but the range that comes first cannot be placed there: a point-to-point one has no
    // functions.
    ProbeMap map = map_of({range("a", {"^jump_through_plt$"}), range("b", {})});
    map.ranges[1].begin = {{Point::Kind::kEntry, pattern("^imported_function$")}};
    map.ranges[1].end = {{Point::Kind::kReturn, pattern("^imported_function$")}};
    const FilePlan result = plan(map, kFunctions);
    EXPECT_EQ(kinds(result, "jump_through_plt"), "entry jump");
    ASSERT_EQ(result.unavailable.size(), 1u);
    EXPECT_EQ(result.unavailable[0].range, 1u);
    EXPECT_EQ(result.unavailable[0].symbol, "");
    EXPECT_EQ(result.unavailable[0].reason, "no point where it begins is in this file");
}

TEST(Plan, PutsTheEntryBeforeAnEndAtTheSameInstruction) {
    const FilePlan result = plan(map_of({range("a", {"^one_(ret|jump)$"})}), kFunctions);
    EXPECT_EQ(kinds(result, "one_ret"), "entry ret");
    EXPECT_EQ(kinds(result, "one_jump"), "entry callee JUMP");
    std::set<std::uint64_t> entries;
    for (const Site& site : result.sites) {
        if (site.kind == SiteKind::kEntry) entries.insert(site.file_offset);
        EXPECT_EQ(entries.contains(site.file_offset), site.kind != SiteKind::kCalleeEnd);
    }
}

TEST(Plan, SaysWhyAFunctionCannotBeProbed) {
    const FilePlan result = plan(map_of({range("a", {"."})}), kFunctions);
    EXPECT_NE(reason(result, "refused_ret"), "");
    EXPECT_NE(reason(result, "invalid_bytes").find("cannot be decoded"), std::string::npos);
    EXPECT_EQ(reason(result, "runs_on"), "its end was not found");
    EXPECT_EQ(kinds(result, "loop_to_entry"), "entry ret");
    EXPECT_EQ(note(result, "loop_to_entry"), "a loop goes back to its first instruction; its turns are no calls");
    EXPECT_EQ(kinds(result, "calls_and_never_returns"), "entry");
    EXPECT_EQ(note(result, "calls_and_never_returns"), "it never returns, so no end is seen");
    EXPECT_EQ(kinds(result, "conditional_jump_out"), "entry JUMP ret");
    EXPECT_NE(note(result, "jump_with_odd_scale").find("it may end unseen at 1 of its jumps"), std::string::npos);
    EXPECT_NE(note(result, "ret_and_runs_on").find("run on into the code that follows"), std::string::npos);
    EXPECT_NE(note(result, "without_size").find("nothing says how long"), std::string::npos);
    EXPECT_EQ(kinds(result, "twin"), "entry ret ret");
    // .cold parts belong to their functions.
    for (const PlannedFunction& function : result.functions)
        EXPECT_EQ(function.symbol.find(".cold"), std::string::npos) << function.symbol;
}

TEST(Plan, RefusesEntriesInsideOfAnotherFunction) {
    const FilePlan result = plan(map_of({range("a", {"^overlapping"})}), kFunctions);
    EXPECT_EQ(kinds(result, "overlapping_outer"), "entry ret");
    EXPECT_EQ(reason(result, "overlapping_inner"), "its entry lies inside of overlapping_outer");
}

TEST(Plan, TakesOutlinedPartsForPartsOfTheirFunctions) {
    const FilePlan result = plan(map_of({range("a", {"^outlined", "^gone"})}), kFunctions);
    // Both of its clones go on in the part, whose ret is one site.
    EXPECT_EQ(kinds(result, "outlined.constprop.0"), "entry ret");
    EXPECT_EQ(kinds(result, "outlined"), "entry ret");
    EXPECT_EQ(note(result, "outlined"), "calls that were inlined and enter outlined.part.0 directly are not counted");
    EXPECT_EQ(kinds(result, "outlined.part.0"), "not planned");
    EXPECT_NE(reason(result, "gone.part.0").find("remainder"), std::string::npos);

    const FilePlan other =
        plan(map_of({range("a", {"^outlined$"}), range("b", {"^(outlined.constprop|inlines)"})}), kFunctions);
    // Each range has its own end where its functions share code.
    EXPECT_EQ(kinds(other, "outlined.constprop.0"), "entry ret");
    EXPECT_EQ(kinds(other, "outlined"), "entry ret ret");
    EXPECT_EQ(kinds(other, "inlines_outlined"), "entry callee JUMP");
}

TEST(Plan, PlansAliasesOnce) {
    const FilePlan result = plan(map_of({range("a", {"^alias_a$"}), range("b", {"^alias_"})}), kFunctions);
    EXPECT_EQ(kinds(result, "alias_a"), "entry ret");
    EXPECT_EQ(function_named(result, "alias_a")->range, 0u);
    EXPECT_EQ(note(result, "alias_a"), "its code is also that of alias_b");
    EXPECT_EQ(function_named(result, "alias_a")->other_symbols, std::vector<std::string>{"alias_b"});
    ASSERT_EQ(result.unavailable.size(), 3u);  // by each name, and the range as a whole
    EXPECT_EQ(result.unavailable[0].range, 1u);
    EXPECT_EQ(result.unavailable[0].reason, "the same code carries the range a, which comes first in the probe map");
}

TEST(Plan, PlansConstructorsOnce) {
    const FilePlan result = plan(map_of({range("a", {"^sample::Widget::~?Widget"})}), kLibrary);
    ASSERT_EQ(result.functions.size(), 2u);
    for (const PlannedFunction& function : result.functions) EXPECT_EQ(function.other_symbols.size(), 1u);
    EXPECT_EQ(function_named(result, "_ZN6sample6WidgetC1Ei")->name, "sample::Widget::Widget(int)");
}

TEST(Plan, ReadsLabelsFromNames) {
    ProbeMap map =
        map_of({range("invoke", {"^sample::Kernel<sample::(?P<operator>\\w+), (?P<implementation>\\d+)ul>::run"})});
    map.ranges[0].labels = {{"backend", "cpu"}, {"operator", "overridden"}};
    map.labels["implementation"].values = {{"1", "fast"}};
    const FilePlan result = plan(map, kLibrary);
    ASSERT_EQ(result.functions.size(), 2u);
    std::set<std::map<std::string, std::string>> labels;
    for (const PlannedFunction& function : result.functions) labels.insert(function.labels);
    EXPECT_TRUE(labels.contains({{"backend", "cpu"}, {"implementation", "0"}, {"operator", "Add"}}));
    EXPECT_TRUE(labels.contains({{"backend", "cpu"}, {"implementation", "fast"}, {"operator", "RmsNorm"}}));
}

TEST(Plan, HandlesWhatCompilersMake) {
    const FilePlan result = plan(map_of({range("a", {"^sample::", " sample::apply<"})}), kLibrary);
    EXPECT_TRUE(result.unavailable.empty());
    // The handler's way back is seen: it returns from the .cold part, or jumps back into the body.
    EXPECT_EQ(note(result, "_ZN6sample7catchesEi"), "");
    EXPECT_EQ(kinds(result, "_ZN6sample8forwardsEi"), "entry JUMP");
    EXPECT_EQ(kinds(result, "_ZN6sample16forwards_outsideEi"), "entry jump");
    EXPECT_EQ(kinds(result, "_ZN6sample5failsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"), "entry");
    const auto is_clone = [](const PlannedFunction& f) { return f.name.ends_with("[clone .constprop.0]"); };
    EXPECT_EQ(std::count_if(result.functions.begin(), result.functions.end(), is_clone), 1);
    const auto is_lambda = [](const PlannedFunction& f) {
        return f.name.find("{lambda(int)#1}::operator()(int) const") != std::string::npos;
    };
    EXPECT_EQ(std::count_if(result.functions.begin(), result.functions.end(), is_lambda), 1);
}

TEST(Plan, KnowsStrippedFiles) {
    const FilePlan result = plan(map_of({range("a", {"^sample::"})}), "libfixture_stripped.so");
    EXPECT_TRUE(result.stripped);
    EXPECT_NE(function_named(result, "_ZN6sample8forwardsEi"), nullptr);
}

TEST(Plan, MatchesSymbolsByGlob) {
    const FilePlan result = plan(map_of({range("a", {}, {"_ZN6sample8forwards*", "entry_call"})}), kLibrary);
    EXPECT_EQ(result.functions.size(), 1u);
    const FilePlan functions = plan(map_of({range("a", {}, {"every_*", "one_?et"})}), kFunctions);
    EXPECT_EQ(functions.functions.size(), 2u);
}

// The sanitizers of a Debug build make this say more than "did not crash".
TEST(Plan, SurvivesDamage) {
    const ProbeMap map = map_of({range("a", {"."}), range("b", {"e"}, {"*"})});
    for (const std::string& name : {kFunctions, kLibrary}) {
        std::ifstream stream(mapped(name).open_path, std::ios::binary);
        const std::string original(std::istreambuf_iterator<char>(stream), {});
        MappedFile file = mapped(name);
        file.open_path = testing::TempDir() + "plan_test_" + std::to_string(getpid());
        std::mt19937 random(1);
        for (int round = 0; round < kDamageRounds; ++round) {
            std::string bytes = original;
            for (int flips = 1 + round % 30; flips > 0; --flips)
                bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
            if (round % 8 == 0) bytes.resize(random() % bytes.size());
            std::ofstream(file.open_path, std::ios::binary) << bytes;
            const FilePlan result = plan_file(map, file, settings());
            plan_exception_landing(file, kKernel);
            for (const Site& site : result.sites) EXPECT_LT(site.file_offset, bytes.size());
        }
        unlink(file.open_path.c_str());
    }
}

TEST(ExceptionLanding, IsFoundWhereItIsDefined) {
    for (const std::string& path : {std::string(HOSTRANGE_FIXTURES "/libfixture_functions.so"),
                                    std::string("/lib/x86_64-linux-gnu/libstdc++.so.6")}) {
        MappedFile file;
        file.path = file.open_path = path;
        const FilePlan result = plan_exception_landing(file, kKernel);
        ASSERT_EQ(result.sites.size(), 1u) << path << ": " << result.problem;
        EXPECT_EQ(result.sites[0].kind, SiteKind::kCatch);
        EXPECT_EQ(result.functions.at(0).symbol, "__cxa_begin_catch");
        EXPECT_FALSE(result.has_range_sites());
    }
    const FilePlan none = plan_exception_landing(mapped(kLibrary), kKernel);
    EXPECT_TRUE(none.sites.empty());
    EXPECT_EQ(none.problem, "");
}

TEST(CloneSuffix, TellsPartsFromFunctions) {
    EXPECT_EQ(clone_suffix("f").base, "f");
    EXPECT_FALSE(clone_suffix("f.constprop.0.isra.0").cold);
    EXPECT_TRUE(clone_suffix("f.cold").cold);
    EXPECT_EQ(clone_suffix("f.constprop.0.cold").base, "f.constprop.0");
    EXPECT_TRUE(clone_suffix("f.cold.1").numbered_cold);
    EXPECT_FALSE(clone_suffix("f.cold").numbered_cold);
    EXPECT_TRUE(clone_suffix("f.part.0").part);
    EXPECT_TRUE(clone_suffix("f.part.0.isra.0").part);
    EXPECT_EQ(clone_suffix("f.isra.0.part.3").root, "f");
    EXPECT_TRUE(clone_suffix("f.part.0.cold").cold);
    EXPECT_FALSE(clone_suffix("my.part").part);
    EXPECT_FALSE(clone_suffix("my.cold.thing").cold);
    EXPECT_FALSE(clone_suffix(".cold").cold);
}

}  // namespace
}  // namespace hostrange
