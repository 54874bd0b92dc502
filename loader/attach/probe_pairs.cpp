// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/probe_pairs.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "loader/attach/plan_probes.h"

namespace hostrange {
namespace {

using Place = std::pair<std::uint64_t, bool>;  // file offset, and whether it is a uretprobe

EntryWay entry_way(const Site& site, Room room) {
    const bool is_stepped = site.instruction.instruction_class == InstructionClass::kSingleStep;
    if (room == Room::kSteps) return is_stepped ? EntryWay::kStepsSingleStep : EntryWay::kStepsEmulated;
    if (site.instruction.instruction_class == InstructionClass::kOptimisedNop) return EntryWay::kOptimisedNop;
    return is_stepped ? EntryWay::kSingleStep : EntryWay::kEmulated;
}

EndWay steps_end(const Site& site) {
    return site.instruction.instruction_class == InstructionClass::kSingleStep ? EndWay::kStepsSingleStep
                                                                               : EndWay::kStepsEmulated;
}

// The ends of one function, in the order of preference.
struct Ends {
    const Site *on_return = nullptr, *ret = nullptr, *other = nullptr, *jump = nullptr, *tail_jump = nullptr;
    bool by_callee = false;
};

EndWay end_way(const Ends& ends, const std::map<Place, Room>& rooms) {
    if (ends.on_return) return EndWay::kUretprobe;
    const auto is_simple = [&](const Site& site) {
        return rooms.at({site.file_offset, site.on_return}) == Room::kExit;
    };
    if (ends.ret) return is_simple(*ends.ret) ? EndWay::kRet : steps_end(*ends.ret);
    if (ends.other) return steps_end(*ends.other);
    if (ends.jump) return is_simple(*ends.jump) ? EndWay::kJump : steps_end(*ends.jump);
    if (ends.tail_jump) return ends.by_callee ? EndWay::kCallee : EndWay::kTailJump;
    return EndWay::kRet;
}

}  // namespace

std::string entry_way_name(EntryWay way) {
    constexpr std::array<std::string_view, 7> kNames = {
        "optimised_nop", "emulated", "single_step", "steps_emulated", "steps_single_step", "lone_jump", "marker"};
    return std::string(kNames[static_cast<std::size_t>(way)]);
}

std::string end_way_name(EndWay way) {
    constexpr std::array<std::string_view, 8> kNames = {"ret",  "uretprobe",         "tail_jump",      "callee",
                                                        "jump", "steps_single_step", "steps_emulated", "marker"};
    return std::string(kNames[static_cast<std::size_t>(way)]);
}

std::vector<ScopeProbes> scope_probes_of_plan(const FilePlan& plan) {
    std::map<Place, Room> rooms;
    std::set<Place> paid;  // another scope has the cost of the hit there
    for (const Probe& probe : probes_of_plan(plan, std::vector<std::uint32_t>(plan.sites.size())))
        rooms[{probe.file_offset, probe.room == Room::kReturn || probe.room == Room::kReturnSteps}] = probe.room;

    std::map<std::uint32_t, Ends> ends_of;  // by function
    std::map<std::uint32_t, Ends> shared;   // by range: an end may stand under another function that shares it
    for (const Site& site : plan.sites) {
        if (opens_scope(site.kind) || site.kind == SiteKind::kCatch) continue;
        const Place place{site.file_offset, site.on_return};
        if (site.kind != SiteKind::kCalleeEnd && !site.continues) paid.insert(place);
        for (Ends* ends : {&ends_of[site.function], &shared[site.range]}) {
            const auto keep = [&](const Site*& kept) {
                if (!kept) kept = &site;
            };
            if (site.kind == SiteKind::kReturn)
                keep(ends->on_return);
            else if (site.kind == SiteKind::kRet)
                keep(ends->ret);
            else if (site.kind == SiteKind::kTailJump)
                keep(site.continues ? ends->tail_jump : ends->jump);
            else if (site.kind == SiteKind::kCalleeEnd)
                ends->by_callee = true;
            else
                keep(ends->other);
        }
    }
    std::vector<ScopeProbes> probes(plan.sites.size());
    for (std::size_t i = 0; i < plan.sites.size(); ++i) {
        const Site& site = plan.sites[i];
        if (!opens_scope(site.kind)) continue;
        const Place place{site.file_offset, site.on_return};
        const auto own = ends_of.find(site.function);
        // The points of a range are functions of their own.
        const Ends& ends = own != ends_of.end() && site.kind != SiteKind::kBegin ? own->second : shared[site.range];
        probes[i].pair = {entry_way(site, rooms.at(place)), end_way(ends, rooms)};
        const bool is_lone_jump =
            rooms.at(place) == Room::kEntry && ends.tail_jump && ends.tail_jump->file_offset == site.file_offset;
        if (is_lone_jump) probes[i].pair.entry = EntryWay::kLoneJump;
        const bool is_first = paid.insert(place).second;
        probes[i].shares_entry = rooms.at(place) == Room::kSteps && !is_first;
    }
    return probes;
}

}  // namespace hostrange
