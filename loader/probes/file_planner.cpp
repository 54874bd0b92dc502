// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/file_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

#include "loader/probes/candidates.h"
#include "loader/probes/debug_info.h"
#include "loader/probes/placement.h"
#include "loader/probes/point_places.h"

namespace hostrange {

namespace {

constexpr unsigned kMostLevels = 3;  // of inlined code in one function; see HOSTRANGE_FRAME_LEVELS

class FilePlanner {
public:
    FilePlanner(const ProbeMap& map, const std::string& base_name, const PlanSettings& settings, const ElfFile& file,
                FilePlan& plan)
        : map_(map),
          settings_(settings),
          ranges_(ranges_of_file(map, base_name)),
          file_(file),
          matcher_(map, base_name),
          anywhere_(map),
          groups_(group_functions(file)),
          reader_(file, settings.kernel),
          surroundings_{file, reader_, [this](const ExitInstruction& exit) { return callee_of(exit); },
                        [this](std::uint32_t range) { return map_.ranges[range].follow_tail_calls; }},
          plan_(plan) {}

    void run() {
        find_functions();
        find_inlined();
        find_places();
        if (matching_ > settings_.max_sites) {
            plan_.too_many_functions = true;
            plan_.problem = fmt::format("the probe map matches {} functions of it, more than --max-sites={}", matching_,
                                        settings_.max_sites);
            return;
        }
        for (Placement& placement : placements_) read(placement);
        note_outlined_parts();
        // Only now is it known which functions are probed, and so where a tail jump leads to.
        for (Placement& placement : placements_) {
            if (!placement.matches.empty()) add_sites(placement, surroundings_, plan_);
        }
        PointPlaces points{map_, ranges_, file_, groups_, reader_, settings_.kernel, plan_};
        points.add();
        lone_ = points.drop_lone(anywhere_);
        refuse_crowds();
        note_ranges();
    }

private:
    void unavailable(std::uint32_t range, const std::string& symbol, const std::string& reason) {
        plan_.unavailable.push_back({range, symbol, reason, {}});
    }

    void unavailable(const Placement& placement, const std::string& reason) {
        for (const SymbolMatch& match : placement.matches) unavailable(match.range, placement.name, reason);
    }

    // ---- what matches

    bool is_within_limit() { return ++matching_ <= settings_.max_sites; }

    void find_functions() {
        for (const FunctionGroup& group : groups_) {
            std::vector<std::pair<const FunctionSymbol*, SymbolMatch>> found;
            for (const FunctionSymbol* symbol : group.symbols) {
                const CloneSuffix suffix = clone_suffix(symbol->name);
                if (suffix.cold) continue;
                for (SymbolMatch& match : matcher_.match(symbol->name, demangle(symbol->name))) {
                    if (!suffix.part)
                        found.emplace_back(symbol, std::move(match));
                    else if (match.role == Role::kScope)
                        outlined_.emplace_back(symbol, match.range);
                }
            }
            if (!found.empty() && is_within_limit()) add_function(group, found);
        }
    }

    void add_function(const FunctionGroup& group, std::vector<std::pair<const FunctionSymbol*, SymbolMatch>>& found) {
        Placement placement;
        placement.group = group;
        placement.symbol = found.front().first->name;
        placement.name = demangle(placement.symbol);
        bool labels_differ = false;
        for (auto& [symbol, found_match] : found) {
            SymbolMatch& match = found_match;
            const auto same = std::find_if(placement.matches.begin(), placement.matches.end(), [&](const auto& other) {
                return other.role == match.role && (other.range == match.range || match.role == Role::kScope);
            });
            if (same == placement.matches.end()) {
                if (match.role == Role::kScope) placement.symbol = symbol->name;
                placement.matches.push_back(std::move(match));
            } else if (same->range == match.range) {
                labels_differ |= same->labels != match.labels;
            } else {
                others_.emplace_back(match.range, demangle(symbol->name), same->range);
            }
        }
        // Of several ranges that one function matches, the first of the map has it.
        for (const auto& [range, name, other] : others_)
            unavailable(range, name,
                        fmt::format("the same code carries the range {}, which comes first in the probe map",
                                    map_.ranges[other].name));
        others_.clear();
        placement.name = demangle(placement.symbol);
        for (const FunctionSymbol* symbol : group.symbols)
            if (symbol->name != placement.symbol) placement.other_symbols.push_back(symbol->name);
        if (labels_differ) add_note(placement.note, "its names give different labels; those of the first are used");
        placements_.push_back(std::move(placement));
    }

    // Functions that the map gives by their place.
    void find_places() {
        for (const std::uint32_t range : ranges_) {
            for (const FilePlace& place : map_.ranges[range].places) {
                const std::string name = fmt::format("{:#x}", place.offset);
                const std::optional<std::uint64_t> address = file_.address_of_offset(place.offset);
                if (!address) {
                    unavailable(range, name, "there is no code at this offset of the file");
                    continue;
                }
                const std::optional<CallFrame> frame = reader_.frames().at(*address);
                if (frame && frame->begin != *address) {
                    unavailable(range, name,
                                fmt::format("no function begins there: one goes from {:#x} to {:#x}",
                                            file_.file_offset(frame->begin).value_or(0),
                                            file_.file_offset(frame->end - 1).value_or(0) + 1));
                    continue;
                }
                add_place(range, place, *address, name);
            }
        }
    }

    void add_place(std::uint32_t range, const FilePlace& place, std::uint64_t address, const std::string& name) {
        Placement placement;
        if (const FunctionGroup* known = group_at(groups_, address)) {
            placement.group = *known;
        } else {
            const auto after = std::find_if(groups_.begin(), groups_.end(),
                                            [&](const FunctionGroup& group) { return group.address > address; });
            placement.group.address = address;
            placement.group.next = file_.segment_end(address).value();
            if (after != groups_.end()) placement.group.next = std::min(placement.group.next, after->address);
        }
        placement.symbol = placement.name = name;
        placement.matches.push_back({range, Role::kScope, map_.ranges[range].labels});
        const WholeFunction& whole = reader_.read(placement.group);
        const FlowInstruction* first = whole.flow.problem().empty() ? whole.flow.at(address) : nullptr;
        const std::string text = first ? whole.flow.decoded(*first).describe(true, settings_.kernel).text : "";
        if (!place.instruction.empty() && text != place.instruction) {
            unavailable(placement, fmt::format("the instruction there is '{}' and not '{}'", text, place.instruction));
            return;
        }
        placements_.push_back(std::move(placement));
    }

    void find_inlined() {
        std::map<std::pair<std::string, std::string>, std::vector<SymbolMatch>> known;
        const auto matches_of = [&](const std::string& symbol, const std::string& name) -> auto& {
            const auto [found, is_new] = known.try_emplace({symbol, name});
            if (is_new) found->second = matcher_.match(symbol, name);
            return found->second;
        };
        InlinedInstances found = find_inlined_instances(
            plan_.debug_info_path,
            [&](const std::string& symbol, const std::string& name) { return !matches_of(symbol, name).empty(); });
        plan_.debug_info = found.has_debug_info;
        if (!found.problem.empty()) plan_.warnings.push_back("debug information: " + found.problem);
        for (InlinedInstance& instance : found.instances) {
            const std::vector<SymbolMatch>& matches = matches_of(instance.symbol, instance.name);
            if (is_within_limit()) add_instance(std::move(instance), matches);
        }
    }

    void add_instance(InlinedInstance instance, const std::vector<SymbolMatch>& matches) {
        const FunctionGroup* container = group_at(groups_, instance.container_address);
        Placement placement;
        for (const SymbolMatch& match : matches) {
            if (match.role == Role::kScope && placement.scope() != nullptr) continue;
            // The scope of the function around it is the range's already.
            if (match.role == Role::kScope && is_inside_of_range(instance, match.range)) continue;
            placement.matches.push_back(match);
        }
        if (placement.matches.empty()) return;
        placement.symbol = instance.symbol;
        placement.name = instance.name;
        if (container == nullptr) {
            count_inlined(placement, false);
            unavailable(placement, fmt::format("it is inlined into {:#x}, a function without a symbol",
                                               instance.container_address));
            return;
        }
        if (instance.ranges.empty()) {
            count_inlined(placement, false);
            unavailable(placement, "the optimiser has left no code of an inlined call in " +
                                       demangle(container->symbols.front()->name));
            return;
        }
        placement.group = *container;
        InlinedMarks& marks = reader_.inlined_marks(container->address);
        for (const AddressRange& range : instance.ranges) {
            marks.boundaries.insert(range.begin);
            marks.boundaries.insert(range.end);
        }
        marks.beginnings.insert(instance.entry);
        marks.beginnings.insert(instance.beginnings.begin(), instance.beginnings.end());
        marks.boundaries.insert(marks.beginnings.begin(), marks.beginnings.end());
        placement.instance = std::move(instance);
        placements_.push_back(std::move(placement));
    }

    static bool covers(const InlinedInstance& outer, const InlinedInstance& inner) {
        return outer.container_address == inner.container_address && outer.depth < inner.depth &&
               lies_in(outer.ranges, inner.entry);
    }

    bool is_inside_of_range(const InlinedInstance& instance, std::uint32_t range) const {
        return std::any_of(placements_.begin(), placements_.end(), [&](const Placement& other) {
            const SymbolMatch* scope = other.scope();
            if (scope == nullptr || scope->range != range) return false;
            return other.instance ? covers(*other.instance, instance)
                                  : other.group.address == instance.container_address;
        });
    }

    void count_inlined(const Placement& placement, bool placed) {
        for (const SymbolMatch& match : placement.matches) {
            const auto same = std::find_if(plan_.inlined.begin(), plan_.inlined.end(), [&](const InlinedCount& count) {
                return count.range == match.range && count.name == placement.name;
            });
            InlinedCount& count = same != plan_.inlined.end()
                                      ? *same
                                      : plan_.inlined.emplace_back(InlinedCount{match.range, placement.name});
            ++count.total;
            if (placed) ++count.placed;
            if (placed && !placement.inlined.doubt.empty()) ++count.doubtful;
        }
    }

    // ---- whether it can be probed

    void read(Placement& placement) {
        placement.whole = &reader_.read(placement.group);
        std::string reason;
        if (placement.instance) {
            reason = read_instance(placement);
        } else {
            choose_ends(placement);
            reason = why_not(placement);
        }
        if (placement.instance) count_inlined(placement, reason.empty());
        if (!reason.empty()) {
            unavailable(placement, reason);
            placement.matches.clear();
        } else if (placement.scope() != nullptr && !placement.instance) {
            for (const CodePart& part : placement.whole->parts)
                parts_.emplace(part.address, std::pair{part.address + part.size, &placement});
            probed_.emplace(placement.group.address, &placement);
        }
    }

    void choose_ends(Placement& placement) const {
        const SymbolMatch* scope = placement.scope();
        const std::uint32_t range = scope ? scope->range : placement.matches.front().range;
        const ReturnProbes own = map_.ranges[range].return_probes;
        const bool from_map = own != ReturnProbes::kAuto;
        const ReturnProbes chosen = from_map ? own : settings_.return_probes;
        placement.uretprobe = chosen == ReturnProbes::kUretprobe;
        const char* how = placement.uretprobe ? "uretprobe" : "ret";
        const char* why = from_map                        ? "the probe map says so"
                          : chosen != ReturnProbes::kAuto ? "--return-probes says so"
                                                          : "exceptions may cross it";
        placement.ends = fmt::format("{}: {}", how, why);
    }

    std::string why_not(const Placement& placement) const {
        const FunctionCode& code = placement.whole->code;
        if (!code.problem.empty()) return code.problem;
        const auto after = parts_.upper_bound(placement.group.address);
        if (after != parts_.begin() && placement.group.address < std::prev(after)->second.first)
            return "its entry lies inside of " + std::prev(after)->second.second->name;
        if (placement.uretprobe) {
            if (code.unmoved_entry.instruction.address == 0)
                return "a uretprobe would have to stand on its first instruction, which may bear no probe";
            return code.entry_is_branch_target ? "a loop goes back to its first instruction, where a uretprobe would "
                                                 "take each turn for a call"
                                               : "";
        }
        if (code.exits.empty() && code.runs_past_end) return "its end was not found";
        return "";
    }

    std::string read_instance(Placement& placement) {
        const InlinedInstance& instance = *placement.instance;
        const FlowGraph& graph = graphs_.try_emplace(placement.group.address, *placement.whole).first->second;
        placement.inlined = read_inlined_code(*placement.whole, graph, reader_.frames(), instance,
                                              reader_.inlined_marks(placement.group.address), settings_.kernel);
        if (!placement.inlined.problem.empty()) return placement.inlined.problem;
        placement.level = 1;
        for (const Placement& other : placements_) {
            if (&other == &placement || !other.instance || other.scope() == nullptr) continue;
            if (covers(*other.instance, instance)) placement.level = std::max(placement.level, other.level + 1);
        }
        return placement.level > kMostLevels
                   ? fmt::format("it lies in more than {} inlined calls that have probes", kMostLevels - 1)
                   : "";
    }

    // f.part.0 is called from what is left of f, whose scope it is part of; but also from callers of f that have taken
    // in what is left of it, and those calls no symbol shows.
    void note_outlined_parts() {
        for (const auto& [symbol, range] : outlined_) {
            const std::string name = demangle(symbol->name);
            const std::string_view root = clone_suffix(symbol->name).root;
            bool noted = false;
            for (auto& [address, placement] : probed_) {
                const std::vector<const FunctionSymbol*>& own = placement->group.symbols;
                if (std::none_of(own.begin(), own.end(), [&](const FunctionSymbol* own_symbol) {
                        return clone_suffix(own_symbol->name).root == root;
                    }))
                    continue;
                add_note(placement->note, "calls that were inlined and enter " + name + " directly are not counted");
                noted = true;
            }
            if (!noted)
                unavailable(range, name, "it is the remainder of a function that is inlined where it is called");
        }
    }

    // ---- where tail jumps lead

    bool is_probed_name(const std::string& symbol) const {
        const FunctionGroup* own = group_named(symbol);
        if (own != nullptr) return probed_.contains(own->address);
        const std::vector<SymbolMatch> matches = anywhere_.match(symbol, demangle(symbol));
        return std::any_of(matches.begin(), matches.end(),
                           [](const SymbolMatch& match) { return match.role == Role::kScope; });
    }

    const FunctionGroup* group_named(const std::string& symbol) const {
        for (const FunctionSymbol& function : file_.functions())
            if (function.name == symbol) return group_at(groups_, function.address);
        return nullptr;
    }

    Callee callee_of(const ExitInstruction& exit) {
        const std::uint64_t target = exit.jump_target;
        if (const auto found = probed_.find(target); target != 0 && found != probed_.end())
            return {found->second->name, true};
        const std::string imported = target != 0 ? file_.plt_target(target) : file_.got_target(exit.got_address);
        if (!imported.empty()) {
            const auto known = imported_.find(imported);
            if (known != imported_.end()) return known->second;
            const Callee callee{demangle(imported), is_probed_name(imported), group_named(imported)};
            return imported_.emplace(imported, callee).first->second;
        }
        if (target == 0) return {fmt::format("an address computed at run time (at {:#x})", exit.instruction.address)};
        if (const FunctionGroup* group = group_at(groups_, target))
            return {demangle(group->symbols.front()->name), false, group};
        return {fmt::format("{:#x}", target), false, reader_.unnamed_function_at(target)};
    }

    // ---- limits, and what is not there

    // A place can bear only so many sites.
    void refuse_crowds() {
        std::map<std::pair<std::uint64_t, bool>, std::size_t> count;
        std::set<std::uint32_t> refused;
        for (const Site& site : plan_.sites)
            if (++count[{site.file_offset, site.on_return}] > kMostSitesAtOnePlace) refused.insert(site.function);
        for (const std::uint32_t function : refused)
            unavailable(plan_.functions[function].range, plan_.functions[function].name,
                        fmt::format("one instruction would have to bear more than {} sites", kMostSitesAtOnePlace));
        std::erase_if(plan_.sites, [&](const Site& site) { return refused.contains(site.function); });
    }

    void note_ranges() {
        std::vector<std::size_t> missing;  // indices into plan_.unavailable
        for (const std::uint32_t range : ranges_) {
            const RangeDefinition& definition = map_.ranges[range];
            bool begins = false, ends = false;
            for (const Site& site : plan_.sites) {
                if (site.range != range) continue;
                begins |= site.kind == SiteKind::kEntry || site.kind == SiteKind::kInlinedEntry ||
                          site.kind == SiteKind::kBegin;
                ends |= site.kind == SiteKind::kEnd;
            }
            if (begins && (!definition.is_point_to_point() || ends)) continue;
            if (const auto lone = lone_.find(range); lone != lone_.end()) begins = lone->second;
            std::string reason = definition.is_point_to_point() ? begins ? "no point where it ends is in this file"
                                                                         : "no point where it begins is in this file"
                                                                : "no function matches";
            for (const Unavailable& one : plan_.unavailable)
                if (one.range == range && !one.symbol.empty()) reason = "nothing that matches can be probed";
            missing.push_back(plan_.unavailable.size());
            plan_.unavailable.push_back({range, "", reason, {}});
        }
        if (!settings_.want_candidates) return;
        std::vector<const RangeDefinition*> definitions;
        for (const std::size_t index : missing) definitions.push_back(&map_.ranges[plan_.unavailable[index].range]);
        const std::vector<std::vector<std::string>> nearest = nearest_functions(definitions, file_);
        for (std::size_t i = 0; i < missing.size(); ++i) plan_.unavailable[missing[i]].candidates = nearest[i];
    }

    const ProbeMap& map_;
    const PlanSettings& settings_;
    const std::vector<std::uint32_t> ranges_;
    const ElfFile& file_;
    const SymbolMatcher matcher_, anywhere_;
    const std::vector<FunctionGroup> groups_;
    FunctionReader reader_;
    std::map<std::uint64_t, FlowGraph> graphs_;  // of functions with inlined calls, by address
    Surroundings surroundings_;
    FilePlan& plan_;
    std::size_t matching_ = 0;
    std::deque<Placement> placements_;  // pointers to them stay
    std::vector<std::tuple<std::uint32_t, std::string, std::uint32_t>> others_;
    std::vector<std::pair<const FunctionSymbol*, std::uint32_t>> outlined_;      // .part symbols that match a range
    std::map<std::uint64_t, Placement*> probed_;                                 // by address of the entry
    std::map<std::uint64_t, std::pair<std::uint64_t, const Placement*>> parts_;  // by beginning: end, function
    std::unordered_map<std::string, Callee> imported_;
    std::map<std::uint32_t, bool> lone_;  // point-to-point ranges that were dropped: whether they would begin here
};

}  // namespace

void plan_ranges(const ProbeMap& map, const std::string& base_name, const PlanSettings& settings, const ElfFile& file,
                 FilePlan& plan) {
    plan.stripped = !file.has_symbol_table() && !file.is_cut_off();
    FilePlanner(map, base_name, settings, file, plan).run();
}

}  // namespace hostrange
