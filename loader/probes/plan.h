// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/probes/debug_file.h"
#include "loader/probes/function_code.h"
#include "loader/probes/probe_map.h"
#include "loader/probes/process_maps.h"

namespace hostrange {

enum class SiteKind {
    kEntry,         // of a function: opens a scope
    kRet,           // ends one, at a ret instruction
    kTailJump,      // the function leaves by a jump: ends one, unless Site::continues says that the scope goes on
    kReturn,        // ends one, by uretprobe at the function's entry
    kCalleeEnd,     // end of a function that is jumped to: ends the scope of the one that jumped
    kInlinedEntry,  // opens one, where inlined code begins
    kInlinedEnd,    // ends one, where inlined code is left
    kBegin,         // opens one of a point-to-point range
    kEnd,           // ends one
    kCatch,         // __cxa_begin_catch: ends the scopes that an exception has left; belongs to no range
};

// One probe to be placed in one file, with what it does. Several may stand at one instruction; see site_order().
struct Site {
    SiteKind kind = SiteKind::kEntry;
    std::uint32_t range = 0;     // index into ProbeMap::ranges; 0 for kCatch
    std::uint32_t function = 0;  // index into FilePlan::functions
    std::uint64_t file_offset = 0;
    std::int32_t stack_adjust = 0;      // see HOSTRANGE_COOKIE_STACK_ADJUST
    bool from_frame_pointer = false;    // the adjustment is to rbp
    bool on_return = false;             // it is a uretprobe
    bool ended_by_callee = false;       // what the function has jumped to may have ended its scope before
    bool continues = false;             // the scope stays open until the callee's end is seen
    bool repeats = false;               // an entry that other turns of a loop pass too
    bool by_exception = false;          // an end that exceptions lead to
    unsigned level = 0;                 // of inlined code: how many placed calls it lies in, itself among them
    std::optional<unsigned> condition;  // of a conditional jump: it acts only if the jump is taken
    Instruction instruction;
};

bool opens_scope(SiteKind kind);

// In which order sites at one instruction act: what ends before what begins, inner scopes before outer ones.
int site_order(SiteKind kind);

// How many sites may stand at one instruction; HOSTRANGE_MOST_STEPS.
inline constexpr std::size_t kMostSitesAtOnePlace = 8;

// Code that carries a range: a function, an inlined call of one, or a point.
struct PlannedFunction {
    enum class Kind { kFunction, kInlined, kPoint };
    Kind kind = Kind::kFunction;
    std::string symbol;                      // mangled; the first by name that matches if several share the code
    std::vector<std::string> other_symbols;  // further names of the same code (aliases, folded identical functions)
    std::string name;                        // demangled
    std::string container;                   // demangled name of the function it is inlined into
    std::uint32_t range = 0;
    std::map<std::string, std::string> labels;  // by label name, values already mapped
    std::uint64_t file_offset = 0;              // where its code begins
    std::string ends;                           // how its ends are seen, and why so
    std::string note;                           // e.g. why its ends may be missed; may be empty
    std::string doubt;                          // not empty: its calls may be miscounted, and why
};

// A function that matches but cannot be probed, or a range that cannot be placed in this file.
struct Unavailable {
    std::uint32_t range = 0;
    std::string symbol;  // demangled; empty when the whole range is meant
    std::string reason;
    std::vector<std::string> candidates;  // names of functions that come near; of a range, if they are asked for
};

// How many calls of a function are inlined in this file, how many of them are placed, and of how many of those the
// count is in doubt.
struct InlinedCount {
    std::uint32_t range = 0;
    std::string name;
    std::uint32_t placed = 0, doubtful = 0, total = 0;
};

struct FilePlan {
    std::string path;  // as the process sees it
    std::string open_path;
    std::string build_id;
    FileIdentity identity;
    bool stripped = false;        // has no .symtab, nor has its debug file
    std::string debug_file;       // the separate one that was read; empty if none
    std::string debug_info_path;  // the file whose DWARF is read
    bool debug_info = false;      // it has some
    std::vector<PlannedFunction> functions;
    std::vector<Site> sites;
    std::vector<Unavailable> unavailable;
    std::vector<InlinedCount> inlined;
    std::vector<std::string> warnings;  // what could not be read of it, though it is planned
    std::string problem;                // not empty: the file could not be read or planned, and why
    bool too_many_functions = false;    // that is the problem

    bool has_range_sites() const;
};

// Settings of a plan that come from the command line and the kernel.
struct PlanSettings {
    ReturnProbes return_probes = ReturnProbes::kAuto;  // for ranges whose own setting is kAuto
    KernelNops kernel = {};
    std::size_t max_sites = 8192;  // a map that matches more functions than that is refused
    DebugFileSearch debug_files = {};
    bool want_candidates = false;  // fill Unavailable::candidates
};

// Places the ranges of the map in one file. Sites stand by function, and a function's entry before its ends. Functions
// of one range may share an end (a part that both jump to); it is one site, and its Site::function is the first of
// them. `file` names it; it is opened at file.open_path. Never throws for what the file contains.
FilePlan plan_file(const ProbeMap& map, const MappedFile& file, const PlanSettings& settings);

// The site on __cxa_begin_catch, if this file defines that function (libstdc++, libc++abi, or linked in statically).
// Such files need not match a target of the map. A plan without sites and without a problem: it does not.
FilePlan plan_exception_landing(const MappedFile& file, const KernelNops& kernel);

}  // namespace hostrange
