// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/plan_probes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hostrange {
namespace {

std::uint32_t flags_of(const Site& site) {
    std::uint32_t flags = site.continues ? HOSTRANGE_SITE_TAIL_JUMP : 0u;
    if (site.from_frame_pointer) flags |= HOSTRANGE_SITE_FRAME_POINTER;
    if (site.by_exception) flags |= HOSTRANGE_SITE_BY_EXCEPTION;
    switch (site.kind) {
        case SiteKind::kEntry:
            return site.repeats ? flags | HOSTRANGE_SITE_REPEATS : flags;
        case SiteKind::kInlinedEntry:
            return flags | HOSTRANGE_SITE_QUIET | (site.repeats ? HOSTRANGE_SITE_REPEATS : 0u);
        case SiteKind::kInlinedEnd:
            return flags | HOSTRANGE_SITE_QUIET;
        case SiteKind::kCalleeEnd:
            return flags | HOSTRANGE_SITE_QUIET | HOSTRANGE_SITE_ONLY_TAILED;
        case SiteKind::kBegin:
        case SiteKind::kEnd:
            return flags | HOSTRANGE_SITE_QUIET | HOSTRANGE_SITE_POINT;
        case SiteKind::kReturn:
            return site.ended_by_callee ? flags | HOSTRANGE_SITE_QUIET : flags;
        case SiteKind::kRet:
        case SiteKind::kTailJump:
        case SiteKind::kCatch:
            break;
    }
    return flags;
}

std::uint64_t cookie_of(const Site& site, std::size_t number, std::uint32_t flags) {
    const int level = HOSTRANGE_FRAME_LEVELS - HOSTRANGE_INLINED_LEVEL(static_cast<int>(site.level));
    return HOSTRANGE_COOKIE(number, site.range, site.stack_adjust + level, flags);
}

// What the programs for a single entry or end can do.
bool is_simple(const Site& site, std::uint32_t flags) {
    return (flags & ~HOSTRANGE_SITE_TAIL_JUMP) == 0 && !site.condition;
}

// Makes one probe of the sites that stand at one place. `sites`: indices into plan.sites, in the order in which
// they act; `numbers`: by index into plan.sites.
Probe make_probe(const FilePlan& plan, const std::vector<std::uint32_t>& sites,
                 const std::vector<std::uint32_t>& numbers) {
    const Site& first = plan.sites[sites.front()];
    Probe probe{first.file_offset, Room::kSteps, 0, {}, {}};
    for (const std::uint32_t index : sites) probe.functions.push_back(plan.sites[index].function);
    if (first.kind == SiteKind::kCatch) {
        probe.room = Room::kCatch;
        probe.cookie = cookie_of(first, 0, 0);
        return probe;
    }
    std::uint32_t flags = flags_of(first);
    // A function that is nothing but a tail jump.
    const bool is_lone_jump = sites.size() == 2 && first.kind == SiteKind::kEntry && is_simple(first, flags) &&
                              plan.sites[sites[1]].continues && !plan.sites[sites[1]].condition;
    if (is_lone_jump) {
        probe.room = Room::kEntry;
        probe.cookie = cookie_of(first, numbers[sites.front()], HOSTRANGE_SITE_TAIL_JUMP);
        return probe;
    }
    if (sites.size() == 1 && is_simple(first, flags)) {
        probe.room = opens_scope(first.kind) ? Room::kEntry : first.on_return ? Room::kReturn : Room::kExit;
        probe.cookie = cookie_of(first, numbers[sites.front()], flags);
        return probe;
    }
    const auto ends = std::count_if(sites.begin(), sites.end(), [&](std::uint32_t index) {
        return site_order(plan.sites[index].kind) == site_order(SiteKind::kRet);
    });
    for (const std::uint32_t index : sites) {
        const Site& site = plan.sites[index];
        flags = flags_of(site);
        // Functions of several ranges end here: whose call it is, only the scope tells.
        if (ends > 1 && !opens_scope(site.kind)) flags |= HOSTRANGE_SITE_QUIET;
        probe.steps.push_back({cookie_of(site, numbers[index], flags), opens_scope(site.kind) ? 1u : 0u,
                               site.condition.value_or(HOSTRANGE_ALWAYS)});
    }
    probe.room = first.on_return ? Room::kReturnSteps : Room::kSteps;
    return probe;
}

}  // namespace

std::vector<Probe> probes_of_plan(const FilePlan& plan, const std::vector<std::uint32_t>& numbers) {
    // By place: the sites that stand there. A uretprobe at a place fires at another time than a probe there.
    std::map<std::pair<std::uint64_t, bool>, std::vector<std::uint32_t>> places;
    for (std::uint32_t i = 0; i < plan.sites.size(); ++i)
        places[{plan.sites[i].file_offset, plan.sites[i].on_return}].push_back(i);
    std::vector<Probe> probes;
    for (auto& [place, sites] : places) {
        std::stable_sort(sites.begin(), sites.end(), [&](std::uint32_t one, std::uint32_t other) {
            return site_order(plan.sites[one].kind) < site_order(plan.sites[other].kind);
        });
        // An entry that is also the function's end is entered before it is left.
        const auto entry = std::find_if(sites.begin(), sites.end(), [&](std::uint32_t index) {
            return plan.sites[index].kind == SiteKind::kEntry;
        });
        if (entry != sites.end()) {
            const Site& opened = plan.sites[*entry];
            for (const std::uint32_t index : std::vector<std::uint32_t>(sites)) {
                const Site& end = plan.sites[index];
                const bool is_own_end =
                    (end.kind == SiteKind::kRet || end.kind == SiteKind::kTailJump) && end.function == opened.function;
                if (!is_own_end) continue;
                sites.erase(std::find(sites.begin(), sites.end(), index));
                sites.push_back(index);
            }
        }
        probes.push_back(make_probe(plan, sites, numbers));
    }
    return probes;
}

}  // namespace hostrange
