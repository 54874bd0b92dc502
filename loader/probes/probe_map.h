// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace hostrange {

// How the end of a function is seen; see docs/probe-map.md for what each risks.
enum class ReturnProbes {
    kAuto,       // ret, the safe one
    kRet,        // a probe on every ret and every jump that leaves the function
    kUretprobe,  // the kernel replaces the return address: cheaper, and fatal to a target that unwinds across it
};

// A regular expression (RE2) searched in demangled names; its named groups give labels.
struct FunctionPattern {
    std::string text;
    std::shared_ptr<const re2::RE2> expression;
    std::vector<std::string> label_names;  // by capture group, from group 1 on; empty for an unnamed group
};

// A place given by hand, for code without a symbol.
struct FilePlace {
    std::uint64_t offset = 0;  // in the file
    std::string instruction;   // what has to stand there, as the listing shows it; empty: anything
};

// Where a point-to-point range begins or ends: at the entry or the return of a function, or at one instruction.
struct Point {
    enum class Kind { kEntry, kReturn, kPlace };
    Kind kind;
    FunctionPattern function;  // of kEntry and kReturn
    FilePlace place = {};      // of kPlace
};

struct TargetDefinition {
    std::string name;
    std::vector<std::string> file_patterns;  // globs over the base name of a mapped file
};

// A range has either functions (or symbols, or places where functions begin), or a beginning and an end (point to
// point).
struct RangeDefinition {
    std::string name;
    std::vector<std::string> targets;           // names of the targets in which its functions are looked for
    std::vector<FunctionPattern> functions;     // any of them matches
    std::vector<std::string> symbols;           // globs over mangled names; any of them matches
    std::vector<FilePlace> places;              // where functions begin
    std::vector<Point> begin, end;              // any of them begins or ends it
    std::vector<std::string> inside;            // a scope that is below none of these ranges is no scope of this one
    std::vector<std::string> not_inside;        // a scope below one of these ranges is no scope of this one
    std::map<std::string, std::string> labels;  // fixed labels, by label name
    bool cold = false;                          // a call tree that contains it is a cold one
    ReturnProbes return_probes = ReturnProbes::kAuto;
    bool follow_tail_calls = true;  // into functions that are not probed: their ends get probes, whoever calls them

    bool is_point_to_point() const { return !begin.empty(); }
};

// How the text of a named group becomes the value of a label.
struct LabelDefinition {
    std::map<std::string, std::string> values;  // replaces the text; a text that is not listed stays
    bool snake_case = false;                    // linalg::LuSolve -> linalg_lu_solve; for a text not in `values`
};

struct ProbeMap {
    std::string path;
    std::vector<TargetDefinition> targets;
    std::vector<RangeDefinition> ranges;            // index = range number
    std::map<std::string, LabelDefinition> labels;  // by label name

    const TargetDefinition* find_target(std::string_view name) const;
};

// Reads a probe map. `path` names it in messages. Throws Failure(kProbeMap) whose text starts with "path:line:column:"
// and names the key and what is allowed there.
ProbeMap parse_probe_map(std::string_view text, const std::string& path);

// Reads the file at `path`; throws like parse_probe_map(), also when it cannot be read.
ProbeMap load_probe_map(const std::string& path);

// The label's value for the text that a named group matched.
std::string label_value(const ProbeMap& map, const std::string& label, const std::string& text);

// The targets whose file patterns match this base name; empty if none.
std::vector<const TargetDefinition*> targets_of_file(const ProbeMap& map, std::string_view base_name);

}  // namespace hostrange
