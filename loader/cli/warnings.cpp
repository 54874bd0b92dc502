// SPDX-License-Identifier: Apache-2.0
// What the reader of a report must be told: what is missing, what is in doubt, and why.
#include <fmt/format.h>

#include <algorithm>

#include "loader/cli/live_profile.h"
#include "loader/cli/nothing_found.h"
#include "loader/report/rows.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

// The same for the reader, and functions that cannot be probed.
std::vector<std::string> what_is_missing(const std::vector<MissingRange>& missing,
                                         const std::vector<const FilePlan*>& plans) {
    std::map<std::string, std::vector<std::string>> ranges_by_reason;
    for (const MissingRange& range : missing) ranges_by_reason[range.reason].push_back(range.name);
    std::vector<std::string> lines;
    for (const auto& [reason, ranges] : ranges_by_reason) {
        constexpr std::size_t kShown = 8;
        const std::size_t shown = std::min(ranges.size(), kShown);
        lines.push_back(fmt::format("not seen: {}{}: {}", fmt::join(ranges.begin(), ranges.begin() + shown, ", "),
                                    shown < ranges.size() ? fmt::format(" and {} more", ranges.size() - shown) : "",
                                    reason));
    }
    std::uint64_t refused = 0;
    for (const FilePlan* plan : plans)
        for (const Unavailable& one : plan->unavailable) refused += one.symbol.empty() ? 0 : 1;
    if (refused) {
        lines.push_back(fmt::format("{} cannot be probed; `hostrange-bpf probes` and the sidecar say which and why",
                                    counted(refused, "function that matches", "functions that match")));
    }
    return lines;
}

}  // namespace

// A command's first call of an operator is cold. Where marks give the phases, they say which is.
std::string LiveProfile::operators_without_cold_calls() const {
    const bool has_cold_ranges =
        std::any_of(map_.ranges.begin(), map_.ranges.end(), [](const RangeDefinition& range) { return range.cold; });
    if (!has_cold_ranges || options_.command.empty()) return "";
    std::map<std::string, bool> has_cold_calls;
    for (const auto& [key, samples] : collector_->rows()) {
        if (key.test_case == MarkLog::kNoCase && key.range < map_.ranges.size())
            has_cold_calls[key.operator_name] |= key.phase == Phase::kCold;
    }
    std::vector<std::string> names;
    for (const auto& [name, has] : has_cold_calls)
        if (!has && !name.empty()) names.push_back(name);
    return fmt::format("{}", fmt::join(names, ", "));
}

void LiveProfile::warn_of_losses(const ProfileCounts& counts, std::vector<std::string>& warnings) const {
    const auto warn = [&](std::string text) { warnings.push_back(std::move(text)); };
    const AssemblyLosses& losses = assembler_.losses();
    if (counts.total.lost) {
        warn(
            fmt::format("{} lost, the ring buffer being full: their totals are exact, their rows are not; use a larger "
                        "--ring-size",
                        counted(counts.total.lost, "scope was", "scopes were")));
    }
    if (losses.broken_trees) {
        warn(fmt::format("{} dropped, a part of it being lost ({})",
                         counted(losses.broken_trees, "call tree was", "call trees were"),
                         counted(losses.broken_tree_scopes, "scope of it had arrived", "scopes of them had arrived")));
    }
    if (losses.malformed_records) {
        warn(counted(losses.malformed_records, "record was malformed", "records were malformed"));
    }
    if (losses.split_trees) {
        warn(fmt::format("{} too long to be kept whole: each piece has its own phase",
                         counted(losses.split_trees, "call tree was", "call trees were")));
    }
    if (counts.total.overflow) {
        warn(fmt::format("{} deeper than {} open ones and not measured",
                         counted(counts.total.overflow, "scope was", "scopes were"), HOSTRANGE_MAX_DEPTH));
    }
    if (counts.total.orphans) {
        warn(fmt::format(
            "{} that had begun before the probes were there, or whose stack was not told apart",
            counted(counts.total.orphans, "exit ended no scope: of a call", "exits ended no scope: of calls")));
    }
    if (counts.open)
        warn(
            fmt::format("{} still open at the end and not measured", counted(counts.open, "scope was", "scopes were")));
    if (counts.session.no_state)
        warn(fmt::format("{} without memory for its thread's stack of scopes",
                         counted(counts.session.no_state, "hit found the kernel", "hits found the kernel")));
    if (counts.session.lost_events) {
        warn(fmt::format("{} lost: some processes or libraries may not have been profiled",
                         counted(counts.session.lost_events, "process event was", "process events were")));
    }
    if (collector_->budget().coarse_sets) {
        warn(fmt::format("{} outgrew the sample memory: quantiles are within 0.78 %; use a larger --sample-memory",
                         counted(collector_->budget().coarse_sets, "set of samples", "sets of samples")));
    }
    if (unrecorded_) {
        warn(fmt::format("{} while probes were being added for a new library or process, and not recorded",
                         counted(unrecorded_, "call tree began", "call trees began")));
    }
    if (counts.unbalanced) {
        warn(fmt::format("{} whose counters do not add up: please report this",
                         counted(counts.unbalanced, "there is a site", "there are sites")));
    }
}

void LiveProfile::warn_of_doubts(const ProfileCounts& counts, std::vector<std::string>& warnings) const {
    const auto warn = [&](std::string text) { warnings.push_back(std::move(text)); };
    const auto name = [&](std::uint32_t range) -> const std::string& { return map_.ranges[range].name; };
    for (const auto& [range, calls] : counts.unplaced)
        warn(fmt::format("{} of the {} of {} cannot be probed and {} not counted", calls.first,
                         counted(calls.second, "inlined call", "inlined calls"), name(range),
                         calls.first == 1 ? "is" : "are"));
    if (const std::string operators = operators_without_cold_calls(); !operators.empty())
        warn(fmt::format(
            "no call of {} was seen to be cold, though the profile began with the process: their first calls "
            "stand among the warm ones (a range that makes a call cold is not seen in them)",
            operators));
    for (const auto& [range, scopes] : counts.uncertain_conditions)
        warn(fmt::format(
            "the count of {} may be off: whether {} inside of another range hangs on calls that never returned "
            "(longjmp, for instance)",
            name(range), counted(scopes, "scope of it was", "scopes of it were")));
    for (const auto& [range, scopes] : counts.doubtful)
        warn(
            fmt::format("the count of {} may be off: {} of inlined calls that the compiler has copied or split; "
                        "`hostrange-bpf probes` says which",
                        name(range), counted(scopes, "scope is", "scopes are")));
    for (const auto& [range, scopes] : counts.may_have_returned)
        warn(fmt::format(
            "up to {} of {} may have returned and not been counted: calls that were under way when probes were placed, "
            "or on fibers that change threads or whose stacks share a memory area",
            counted(scopes, "unwound scope", "unwound scopes"), name(range)));
    // The kernel keeps so many replaced return addresses a thread (MAX_URETPROBE_DEPTH in kernel/events/uprobes.c).
    constexpr int kMostUretprobes = 64;
    for (const auto& [range, scopes] : counts.unreturned)
        warn(fmt::format(
            "the times of {} are not of all its calls: {} not seen to return, being left by longjmp or lying deeper "
            "than the {} uretprobes that the kernel follows (--return-probes=ret has no such limit)",
            name(range), counted(scopes, "scope was", "scopes were"), kMostUretprobes));
    for (const std::uint32_t range : counts.uncertain_nesting)
        warn(fmt::format(
            "the count of {} may be off: fibers switch inside of scopes, so what lies inside of what is not certain",
            name(range)));
}

void LiveProfile::warn_of_marks(const ProfileCounts& counts, std::vector<std::string>& warnings) const {
    const auto warn = [&](std::string text) { warnings.push_back(std::move(text)); };
    const MarkLog& marks = collector_->marks();
    if (counts.outside_phases)
        warn(fmt::format("{} of cases with phases are left out, being outside of these",
                         counted(counts.outside_phases, "scope", "scopes")));
    if (marks.has_cases() && counts.outside_cases && !options_.output.empty() && options_.fields == Fields::kUpstream)
        warn(fmt::format("{} in no case: in the table and with --fields=all, not in the ten fields",
                         counted(counts.outside_cases, "scope was", "scopes were")));
    if (counts.cases_run_again)
        warn(fmt::format("{} more than once: the rows hold all its runs",
                         counted(counts.cases_run_again, "case ran", "cases ran")));
    if (counts.session.lost_marks)
        warn(fmt::format("{} lost, their ring being full: calls may stand in the wrong case or phase",
                         counted(counts.session.lost_marks, "mark was", "marks were")));
    if (marks.losses().cut)
        warn(fmt::format("{} too long and cut: an ellipsis stands for the rest",
                         counted(marks.losses().cut, "marker text was", "marker texts were")));
    if (marks.losses().unreadable)
        warn(fmt::format("{} not be read and shows as \"?\"",
                         counted(marks.losses().unreadable, "marker text could", "marker texts could")));
    if (marks.losses().unbalanced)
        warn(fmt::format("{} within another one, or ended without having begun",
                         counted(marks.losses().unbalanced, "case or phase was begun", "cases or phases were begun")));
}

void LiveProfile::warn_of_probe_costs(SessionSummary& summary) const {
    if (!summary.uncertain_share) {
        if (collector_->totals().scopes)
            summary.warnings.push_back("times are raw: they include what the probes themselves cost");
        return;
    }
    constexpr double kMuchDrift = 0.04;
    if (drift_ > kMuchDrift) {
        summary.warnings.push_back(fmt::format(
            "what a probe costs changed by {:.0f} % from the calibration to the end of the profile: times are "
            "that much less certain",
            100 * drift_));
    }
    std::uint64_t dear = 0, all = 0;
    for (const ReportRow& row : report_rows(*collector_, RowDetail::kTable)) {
        if (row.inclusive.count() == 0) continue;
        ++all;
        dear += correction_of(row.raw_inclusive, row.inclusive, *summary.uncertain_share).low_confidence ||
                correction_of(row.raw_self, row.self, *summary.uncertain_share).low_confidence;
    }
    if (dear) {
        summary.warnings.push_back(
            fmt::format("{} of {} marked ?: probes cost over {:g} times what is left without them, so little of it is "
                        "certain; fewer ranges or --return-probes=uretprobe cost less (docs/accuracy.md)",
                        dear, counted(all, "row is", "rows are"), kDearProbes));
    }
}

void LiveProfile::warn_of_missing(const ProfileCounts& counts, std::vector<std::string>& warnings) const {
    const auto warn = [&](std::string text) { warnings.push_back(std::move(text)); };
    if (attached_files() > 0) {
        for (std::string& line : what_is_missing(counts.missing, plans())) warn(std::move(line));
    } else {
        warn(fmt::format("{} (probe map: {})", nothing_found(map_, "what ran", plans(), other_files()).what(),
                         map_.path));
    }
}

}  // namespace hostrange
