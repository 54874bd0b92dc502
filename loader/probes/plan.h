// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loader/probes/function_code.h"
#include "loader/probes/probe_map.h"
#include "loader/probes/process_maps.h"

namespace hostrange {

enum class SiteKind {
    kEntry,     // opens a scope
    kRet,       // ends one, at a ret instruction
    kTailJump,  // the function leaves by a jump: ends one, unless Site::continues says that the scope goes on
    kReturn,    // ends one, by uretprobe at the function's entry address
    kCatch,     // __cxa_begin_catch: ends the scopes that an exception has left; belongs to no range
};

// One probe to be placed in one file.
struct Site {
    SiteKind kind;
    std::uint32_t range;     // index into ProbeMap::ranges; 0 for kCatch
    std::uint32_t function;  // index into FilePlan::functions
    std::uint64_t file_offset;
    std::int32_t stack_adjust;  // see struct hostrange_site
    bool continues;             // kTailJump: the scope stays open until the callee's exit is seen
    Instruction instruction;
};

// A function that carries a range.
struct PlannedFunction {
    std::string symbol;                      // mangled; the first by name that matches if several share the code
    std::vector<std::string> other_symbols;  // further names of the same code (aliases, folded identical functions)
    std::string name;                        // demangled
    std::uint32_t range;
    std::map<std::string, std::string> labels;  // by label name, values already mapped
    std::string note;                           // e.g. why its ends may be missed; may be empty
};

// A function that matches but cannot be probed, or a range that cannot be placed in this file.
struct Unavailable {
    std::uint32_t range;
    std::string symbol;  // demangled; empty when the whole range is meant
    std::string reason;
};

struct FilePlan {
    std::string path;  // as the process sees it
    std::string open_path;
    std::string build_id;
    FileIdentity identity;
    bool stripped = false;  // has no .symtab
    std::vector<PlannedFunction> functions;
    std::vector<Site> sites;
    std::vector<Unavailable> unavailable;
    std::string problem;  // not empty: the file could not be read, and why

    bool has_range_sites() const;
};

// Settings of a plan that come from the command line.
struct PlanSettings {
    ReturnProbes return_probes = ReturnProbes::kAuto;  // for ranges whose own setting is kAuto
};

// Places the ranges of the map in one file. Sites stand by function, and a function's entry before its ends: both can
// be one instruction. Functions of one range may share an end (a part that both jump to); it is one site, and its
// Site::function is the first of them. `file` names it; it is opened at file.open_path. Never throws for what the
// file contains.
FilePlan plan_file(const ProbeMap& map, const MappedFile& file, const PlanSettings& settings);

// The site on __cxa_begin_catch, if this file defines that function (libstdc++, libc++abi, or linked in statically).
// Such files need not match a target of the map. A plan without sites and without a problem: it does not.
FilePlan plan_exception_landing(const MappedFile& file);

}  // namespace hostrange
