// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "loader/probes/elf_file.h"
#include "loader/probes/function_parts.h"
#include "loader/probes/symbol_matching.h"

namespace hostrange {

namespace {

constexpr std::int32_t kUretprobeStackAdjust = -8;  // it fires when the return address has been popped already
constexpr std::size_t kMaxNamesInNote = 3;

// A function that carries a range, on its way into the plan.
struct Candidate {
    FunctionGroup group;
    std::uint32_t range = 0;
    PlannedFunction function;
    WholeFunction whole;
    bool uretprobe = false;
};

FilePlan plan_header(const MappedFile& file) {
    FilePlan plan;
    plan.path = file.path;
    plan.open_path = file.open_path;
    plan.identity = file.identity;
    return plan;
}

void add_note(PlannedFunction& function, const std::string& note) {
    if (!function.note.empty()) function.note += "; ";
    function.note += note;
}

class FilePlanner {
public:
    FilePlanner(const ProbeMap& map, const PlanSettings& settings, const ElfFile& file, const SymbolMatcher& matcher,
                FilePlan& plan)
        : map_(map), settings_(settings), file_(file), matcher_(matcher), anywhere_(map), reader_(file), plan_(plan) {}

    void run() {
        find_candidates();
        for (Candidate& candidate : candidates_) read(candidate);
        note_outlined_parts();
        // Only now is it known which functions are probed, and so where a tail jump leads to.
        for (Candidate& candidate : candidates_) add_sites(candidate);
    }

private:
    void unavailable(std::uint32_t range, const std::string& symbol, const std::string& reason) {
        plan_.unavailable.push_back({range, symbol, reason});
    }

    void find_candidates() {
        for (FunctionGroup& group : group_functions(file_)) {
            // By range, in map order: the symbols that match, with the labels each gives.
            std::map<std::uint32_t, std::vector<std::pair<const FunctionSymbol*, SymbolMatch>>> found;
            for (const FunctionSymbol* symbol : group.symbols) {
                const CloneSuffix suffix = clone_suffix(symbol->name);
                if (suffix.cold) continue;
                for (SymbolMatch& match : matcher_.match(symbol->name, demangle(symbol->name))) {
                    if (suffix.part)
                        outlined_.push_back({symbol, match.range});
                    else
                        found[match.range].push_back({symbol, std::move(match)});
                }
            }
            if (!found.empty()) add_candidate(std::move(group), found);
        }
    }

    void add_candidate(FunctionGroup group,
                       std::map<std::uint32_t, std::vector<std::pair<const FunctionSymbol*, SymbolMatch>>>& found) {
        auto& [range, symbols] = *found.begin();
        Candidate candidate;
        candidate.range = range;
        candidate.function.symbol = symbols.front().first->name;
        candidate.function.name = demangle(candidate.function.symbol);
        candidate.function.range = range;
        candidate.function.labels = symbols.front().second.labels;
        for (const FunctionSymbol* symbol : group.symbols)
            if (symbol->name != candidate.function.symbol) candidate.function.other_symbols.push_back(symbol->name);
        const bool labels_differ = std::any_of(symbols.begin(), symbols.end(), [&](const auto& entry) {
            return entry.second.labels != candidate.function.labels;
        });
        if (labels_differ) add_note(candidate.function, "its names give different labels; those of the first are used");
        for (auto other = std::next(found.begin()); other != found.end(); ++other)
            unavailable(other->first, demangle(other->second.front().first->name),
                        fmt::format("the same code carries the range {}, which comes first in the probe map",
                                    map_.ranges[range].name));
        candidate.group = std::move(group);
        candidates_.push_back(std::move(candidate));
    }

    // Decodes the function and drops it, with a reason, if it cannot be probed.
    void read(Candidate& candidate) {
        const ReturnProbes own = map_.ranges[candidate.range].return_probes;
        const ReturnProbes chosen = own == ReturnProbes::kAuto ? settings_.return_probes : own;
        candidate.uretprobe = chosen == ReturnProbes::kUretprobe;
        candidate.whole = reader_.read(candidate.group);
        const std::string reason = why_not(candidate);
        if (!reason.empty()) {
            unavailable(candidate.range, candidate.function.name, reason);
            return;
        }
        for (const ExitInstruction& exit : candidate.whole.code.exits)
            if (!candidate.uretprobe) ends_.emplace(exit.instruction.address, &candidate);
        for (const CodePart& part : candidate.whole.parts)
            parts_.emplace(part.address, std::pair{part.address + part.size, &candidate});
        probed_.emplace(candidate.group.address, &candidate);
    }

    std::string why_not(const Candidate& candidate) const {
        const FunctionCode& code = candidate.whole.code;
        if (!code.problem.empty()) return code.problem;
        if (code.entry_is_branch_target)
            return "a loop goes back to its first instruction, and each turn would count as a call";
        const auto after = parts_.upper_bound(candidate.group.address);
        if (after != parts_.begin() && candidate.group.address < std::prev(after)->second.first)
            return "its entry lies inside of " + std::prev(after)->second.second->function.name;
        if (candidate.uretprobe) return "";
        if (code.exits.empty() && code.runs_past_end) return "its end was not found";
        // A scope is ended by range and stack pointer, so functions of one range may have an end in common.
        for (const ExitInstruction& exit : code.exits) {
            const auto taken = ends_.find(exit.instruction.address);
            if (taken != ends_.end() && taken->second->range != candidate.range)
                return fmt::format("it shares its end at {:#x} with {}, of the range {}", exit.instruction.address,
                                   taken->second->function.name, map_.ranges[taken->second->range].name);
        }
        return "";
    }

    // f.part.0 is called from what is left of f, whose scope it is part of; but also from callers of f that have taken
    // in what is left of it, and those calls no symbol shows.
    void note_outlined_parts() {
        for (const auto& [symbol, range] : outlined_) {
            const std::string name = demangle(symbol->name);
            const std::string_view root = clone_suffix(symbol->name).root;
            bool noted = false;
            for (auto& [address, candidate] : probed_) {
                const std::vector<const FunctionSymbol*>& own = candidate->group.symbols;
                if (std::none_of(own.begin(), own.end(), [&](const FunctionSymbol* own_symbol) {
                        return clone_suffix(own_symbol->name).root == root;
                    }))
                    continue;
                add_note(candidate->function,
                         "calls that were inlined and enter " + name + " directly are not counted");
                noted = true;
            }
            if (!noted)
                unavailable(range, name, "it is the remainder of a function that is inlined where it is called");
        }
    }

    bool is_probed_name(const std::string& symbol) const {
        bool defined_here = false;
        for (const FunctionSymbol& function : file_.functions()) {
            if (function.name != symbol) continue;
            defined_here = true;
            if (probed_.contains(function.address)) return true;
        }
        return !defined_here && !anywhere_.match(symbol, demangle(symbol)).empty();
    }

    // Where a tail jump leads to: the address of a function or of a PLT slot, or a slot of the GOT.
    struct Callee {
        std::string name;
        bool probed = false;
    };

    Callee callee_of(const ExitInstruction& exit) {
        const std::uint64_t target = exit.jump_target;
        const std::string imported = target != 0 ? file_.plt_target(target) : file_.got_target(exit.got_address);
        if (const auto found = probed_.find(target); target != 0 && found != probed_.end())
            return {found->second->function.name, true};
        if (!imported.empty()) {
            const auto known = imported_.find(imported);
            if (known != imported_.end()) return known->second;
            return imported_.emplace(imported, Callee{demangle(imported), is_probed_name(imported)}).first->second;
        }
        if (target == 0) return {fmt::format("an address computed at run time (at {:#x})", exit.instruction.address)};
        const auto& functions = file_.functions();
        const auto symbol = std::lower_bound(functions.begin(), functions.end(), target,
                                             [](const FunctionSymbol& a, std::uint64_t b) { return a.address < b; });
        if (symbol != functions.end() && symbol->address == target) return {demangle(symbol->name)};
        return {fmt::format("{:#x}", target)};
    }

    static void add_notes_on_names(PlannedFunction& function, const WholeFunction& whole) {
        std::set<std::string> other_names;
        for (const std::string& symbol : function.other_symbols) other_names.insert(demangle(symbol));
        other_names.erase(function.name);
        if (!other_names.empty())
            add_note(function, fmt::format("its code is also that of {}{}", *other_names.begin(),
                                           other_names.size() == 1 ? "" : " and others"));
        if (whole.size_is_guess) add_note(function, "its symbol has no size; its end was looked for in its code");
        if (whole.cold_part_is_ambiguous)
            add_note(function, "several functions share its name; ends in its handlers of exceptions may be missed");
    }

    static void add_notes_on_ends(PlannedFunction& function, const FunctionCode& code,
                                  const std::set<std::string>& left_to) {
        if (code.exits.empty() && !code.runs_past_end) add_note(function, "it never returns, so no end is seen");
        if (!code.exits.empty() && code.exits.front().instruction.address == code.entry.address)
            add_note(function, "its first instruction is also an end");
        if (!code.exits.empty() && code.runs_past_end)
            add_note(function, "it may run on into the code that follows, where no end is seen");
        if (!code.unresolved_jumps.empty())
            add_note(function, fmt::format("it may end unseen at {} of its jumps, the first at {:#x} ({})",
                                           code.unresolved_jumps.size(), code.unresolved_jumps.front().address,
                                           code.unresolved_jumps.front().text));
        std::size_t named = 0;
        for (const std::string& name : left_to) {
            if (++named > kMaxNamesInNote) break;
            add_note(function, "it ends at its tail jump to " + name);
        }
        if (left_to.size() > kMaxNamesInNote)
            add_note(function, fmt::format("and at those to {} others", left_to.size() - kMaxNamesInNote));
    }

    void add_sites(Candidate& candidate) {
        if (!probed_.contains(candidate.group.address) || probed_.at(candidate.group.address) != &candidate) return;
        const FunctionCode& code = candidate.whole.code;
        const auto index = static_cast<std::uint32_t>(plan_.functions.size());
        const auto add = [&](SiteKind kind, const Instruction& instruction, std::int32_t adjust, bool continues) {
            plan_.sites.push_back({kind, candidate.range, index, file_.file_offset(instruction.address).value(), adjust,
                                   continues, instruction});
        };
        // The entry comes first: where the first instruction is also an end, its probe has to be attached before.
        add(SiteKind::kEntry, code.entry, 0, false);
        add_notes_on_names(candidate.function, candidate.whole);
        if (candidate.uretprobe) {
            add(SiteKind::kReturn, code.entry, kUretprobeStackAdjust, false);
        } else {
            std::set<std::string> left_to;
            for (const ExitInstruction& exit : code.exits) {
                const bool own = ends_.at(exit.instruction.address) == &candidate;
                if (exit.kind == ExitInstruction::Kind::kRet) {
                    if (own) add(SiteKind::kRet, exit.instruction, 0, false);
                    continue;
                }
                const Callee callee = callee_of(exit);
                if (own) add(SiteKind::kTailJump, exit.instruction, 0, callee.probed);
                if (!callee.probed) left_to.insert(callee.name);
            }
            add_notes_on_ends(candidate.function, code, left_to);
        }
        plan_.functions.push_back(std::move(candidate.function));
    }

    const ProbeMap& map_;
    const PlanSettings& settings_;
    const ElfFile& file_;
    const SymbolMatcher& matcher_;
    const SymbolMatcher anywhere_;
    FunctionReader reader_;
    FilePlan& plan_;
    std::vector<Candidate> candidates_;
    std::vector<std::pair<const FunctionSymbol*, std::uint32_t>> outlined_;      // .part symbols that match a range
    std::map<std::uint64_t, Candidate*> probed_;                                 // by address of the entry
    std::map<std::uint64_t, std::pair<std::uint64_t, const Candidate*>> parts_;  // by beginning: end, function
    std::unordered_map<std::uint64_t, const Candidate*> ends_;  // by address: the function that has the site
    std::unordered_map<std::string, Callee> imported_;
};

}  // namespace

bool FilePlan::has_range_sites() const {
    return std::any_of(sites.begin(), sites.end(), [](const Site& site) { return site.kind != SiteKind::kCatch; });
}

FilePlan plan_file(const ProbeMap& map, const MappedFile& file, const PlanSettings& settings) {
    FilePlan plan = plan_header(file);
    const std::vector<std::uint32_t> ranges = ranges_of_file(map, file.base_name);
    if (ranges.empty()) return plan;
    for (const std::uint32_t range : ranges)
        if (map.ranges[range].is_point_to_point())
            plan.unavailable.push_back({range, "", "point-to-point ranges are not placed yet"});
    const std::unique_ptr<ElfFile> elf = ElfFile::open(file.open_path, plan.problem);
    if (!elf) return plan;
    plan.build_id = elf->build_id();
    plan.stripped = !elf->has_symbol_table();
    const SymbolMatcher matcher(map, file.base_name);
    if (matcher.has_ranges()) FilePlanner(map, settings, *elf, matcher, plan).run();
    return plan;
}

FilePlan plan_exception_landing(const MappedFile& file) {
    FilePlan plan = plan_header(file);
    const std::unique_ptr<ElfFile> elf = ElfFile::open(file.open_path, plan.problem);
    if (!elf) return plan;
    plan.build_id = elf->build_id();
    plan.stripped = !elf->has_symbol_table();
    for (const FunctionGroup& group : group_functions(*elf)) {
        const std::string wanted = "__cxa_begin_catch";
        if (std::none_of(group.symbols.begin(), group.symbols.end(),
                         [&](const FunctionSymbol* symbol) { return symbol->name == wanted; }))
            continue;
        const FunctionCode code = FunctionReader(*elf).read(group).code;
        if (!code.problem.empty()) {
            plan.problem = wanted + ": " + code.problem;
            return plan;
        }
        plan.functions.push_back({wanted, {}, wanted, 0, {}, ""});
        plan.sites.push_back({SiteKind::kCatch, 0, 0, elf->file_offset(group.address).value(), 0, false, code.entry});
        return plan;
    }
    return plan;
}

}  // namespace hostrange
