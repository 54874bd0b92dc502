// SPDX-License-Identifier: Apache-2.0
// The end of a profile: counters of the kernel and of the collector are brought together, checked, and reported.
#include <algorithm>
#include <cstdio>

#include "loader/cli/invoking_user.h"
#include "loader/cli/live_profile.h"
#include "loader/cli/tell.h"
#include "loader/probes/symbol_matching.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

// Ranges of the map of which nothing can be seen in these files.
std::vector<MissingRange> missing_ranges(const ProbeMap& map, const std::vector<const FilePlan*>& plans) {
    std::vector<bool> begins(map.ranges.size()), ends(map.ranges.size());
    std::vector<std::string> reasons(map.ranges.size());
    for (const FilePlan* plan : plans) {
        for (const Site& site : plan->sites) {
            if (opens_scope(site.kind)) begins[site.range] = true;
            if (site.kind == SiteKind::kEnd) ends[site.range] = true;
        }
        // A function that matches but cannot be probed says more than that a file has none.
        for (const Unavailable& one : plan->unavailable) {
            std::string& reason = reasons[one.range];
            if (!one.symbol.empty()) reason = fmt::format("{}: {}", one.symbol, one.reason);
        }
    }
    std::vector<bool> has_file(map.ranges.size());
    std::vector<std::string> stripped(map.ranges.size());  // files of it that are
    for (const FilePlan* plan : plans) {
        const std::string base_name = plan->path.substr(plan->path.rfind('/') + 1);
        for (const std::uint32_t range : ranges_of_file(map, base_name)) {
            has_file[range] = true;
            // What a stripped file does not export has no name there.
            if (plan->stripped) stripped[range] += fmt::format("; {} is stripped", base_name);
        }
    }
    std::vector<MissingRange> missing;
    for (std::size_t i = 0; i < map.ranges.size(); ++i) {
        const bool is_point_to_point = map.ranges[i].is_point_to_point();
        if (begins[i] && (!is_point_to_point || ends[i])) continue;
        const char* nothing = !has_file[i]         ? "no file of its targets was mapped"
                              : !is_point_to_point ? "no function matches"
                              : begins[i]          ? "no point where it ends matches"
                                                   : "no point where it begins matches";
        std::string reason = reasons[i].empty() ? nothing + stripped[i] : reasons[i];
        missing.push_back({map.ranges[i].name, std::move(reason)});
    }
    return missing;
}

bool ends_by_uretprobe(const FilePlan& plan, std::size_t function) {
    return std::any_of(plan.sites.begin(), plan.sites.end(),
                       [&](const Site& site) { return site.function == function && site.kind == SiteKind::kReturn; });
}

}  // namespace

void LiveProfile::count_sites(ProfileCounts& result) const {
    std::map<std::uint32_t, std::uint64_t> open_by_site;
    for (const OpenThread& thread : open_threads_) {
        for (const std::uint32_t site : thread.sites) ++open_by_site[site];
    }
    for (const auto& [site, count] : session_->open_detached_scopes()) open_by_site[site] += count;

    std::map<std::uint32_t, std::uint64_t> unwound, orphans;  // by range
    result.session = session_->session_counters();
    const std::vector<NumberedSite>& sites = session_->sites();
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const hostrange_site_counters counters = session_->site_counters(i);
        const std::uint64_t open = open_by_site.count(i) ? open_by_site.at(i) : 0;
        result.sites.push_back({counters, open});
        result.open += open;
        if (counters.entries != counters.exits + counters.by_exception + counters.abandoned + open) ++result.unbalanced;
        result.total.exits += counters.exits;
        result.total.by_exception += counters.by_exception;
        result.total.abandoned += counters.abandoned;
        result.total.overflow += counters.overflow;
        result.total.lost += counters.lost;
        result.total.orphans += counters.orphans;
        const std::uint32_t range = sites[i].range;
        if (counters.lost) result.lost[range] += counters.lost;
        if (counters.lost || counters.overflow) result.inexact.insert(range);
        if (range == kMarkerRange) continue;
        const std::uint64_t looked_dead =
            counters.abandoned + (result.session.dead_forgotten ? counters.by_exception : 0);
        if (looked_dead) unwound[range] += looked_dead;
        if (counters.orphans) orphans[range] += counters.orphans;
        if (!counters.entries) continue;
        const bool has_condition = !map_.ranges[range].inside.empty() || !map_.ranges[range].not_inside.empty();
        if (has_condition && (result.session.ended_late || result.session.out_of_order))
            result.uncertain_nesting.insert(range);
        const FilePlan& plan = files_.at(sites[i].file)->plan;
        const std::size_t function = plan.sites[sites[i].plan_site].function;
        if (!plan.functions[function].doubt.empty()) result.doubtful[range] += counters.entries;
        if (counters.abandoned && ends_by_uretprobe(plan, function)) result.unreturned[range] += counters.abandoned;
    }
    for (const auto& [range, count] : unwound)
        if (orphans.contains(range)) result.may_have_returned[range] = std::min(count, orphans.at(range));
}

void LiveProfile::count_cases(ProfileCounts& result) const {
    const MarkLog& marks = collector_->marks();
    for (const MarkedCase& one : marks.cases()) result.cases_run_again += one.runs > 1;
    for (const auto& [key, samples] : collector_->rows()) {
        if (key.test_case == MarkLog::kNoCase)
            result.outside_cases += samples->inclusive.count();
        else if (key.outside_phases && marks.cases()[key.test_case].has_phases)
            result.outside_phases += samples->inclusive.count();
    }
}

ProfileCounts LiveProfile::count() const {
    ProfileCounts counts;
    count_sites(counts);
    count_cases(counts);
    counts.missing = missing_ranges(map_, plans());
    for (const auto& [range, scopes] : collector_->totals().uncertain_conditions)
        counts.uncertain_conditions[range] = scopes;
    for (const FilePlan* plan : plans()) {
        for (const InlinedCount& count : plan->inlined) {
            if (count.total == 0) continue;
            counts.unplaced[count.range].first += count.total - count.placed;
            counts.unplaced[count.range].second += count.total;
        }
    }
    std::erase_if(counts.unplaced, [](const auto& range) { return range.second.first == 0; });

    std::set<std::uint32_t>& inexact = counts.inexact;
    for (const PlannedFile* file : order_) {
        if (!file->overwritten) continue;
        for (const PlannedFunction& function : file->plan.functions) inexact.insert(function.range);
    }
    for (const auto* scopes :
         {&counts.doubtful, &counts.uncertain_conditions, &counts.may_have_returned, &counts.unreturned})
        for (const auto& [range, count] : *scopes) inexact.insert(range);
    for (const auto& [range, calls] : counts.unplaced) inexact.insert(range);
    inexact.insert(counts.uncertain_nesting.begin(), counts.uncertain_nesting.end());
    return counts;
}

SessionSummary LiveProfile::summarize(double duration_s) const {
    const ProfileCounts counts = count();
    SessionSummary summary;
    summary.duration_s = duration_s;
    summary.processes = processes_;
    summary.warnings = warnings_;
    summary.lost_by_range = counts.lost;
    summary.inexact_ranges = counts.inexact;
    summary.nothing_probed = attached_files() == 0 && attached_markers() == 0;
    // An interval is never smaller: the machine's speed changes between calibrations, unseen (docs/accuracy.md).
    constexpr double kLeastUncertainShare = 0.15;
    if (calibration_) summary.uncertain_share = std::max(kLeastUncertainShare, drift_);
    warn_of_losses(counts, summary.warnings);
    warn_of_doubts(counts, summary.warnings);
    warn_of_marks(counts, summary.warnings);
    warn_of_missing(counts, summary.warnings);
    warn_of_probe_costs(summary);
    summary.meta = sidecar(counts, summary);
    return summary;
}

void LiveProfile::report(double duration_s) {
    const SessionSummary summary = summarize(duration_s);
    if (!options_.output.empty()) {
        const std::string lines = json_lines(*collector_, summary, options_.fields);
        if (options_.output == "-") {
            std::fwrite(lines.data(), 1, lines.size(), stdout);
            for (const std::string& warning : summary.warnings) {
                tell("hostrange-bpf: {}\n", warning);
            }
            return;
        }
        const std::optional<InvokingUser> user = invoking_user();
        const int owner = user ? static_cast<int>(user->user) : -1, group = user ? static_cast<int>(user->group) : -1;
        write_atomically(options_.output, lines, owner, group);
        if (has_sidecar(options_.output)) {
            write_atomically(options_.output + ".meta.json", summary.meta.dump(2) + "\n", owner, group);
        }
    }
    const std::string text = table(*collector_, summary, terminal_width());
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);  // main() looks whether it worked
    if (!options_.output.empty()) tell("hostrange-bpf: report in {}\n", options_.output);
}

}  // namespace hostrange
