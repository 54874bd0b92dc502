// SPDX-License-Identifier: Apache-2.0
// The end of a profile: counters of the kernel and of the collector are brought together, checked, and reported.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "loader/cli/invoking_user.h"
#include "loader/cli/live_profile.h"
#include "loader/cli/nothing_found.h"
#include "loader/cli/plan_names.h"
#include "loader/cli/tell.h"
#include "loader/probes/symbol_matching.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

using Json = nlohmann::ordered_json;

Json counters_json(const hostrange_site_counters& counters, std::uint64_t open) {
    return {{"entries", counters.entries},
            {"exits", counters.exits},
            {"by_exception", counters.by_exception},
            {"abandoned", counters.abandoned},
            {"open", open},
            {"overflow", counters.overflow},
            {"lost", counters.lost},
            {"orphans", counters.orphans},
            {"total_ns", counters.total_ns}};
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

Json host_json(const KernelFeatures& kernel) {
    utsname name{};
    uname(&name);
    return {{"name", name.nodename},
            {"machine", name.machine},
            {"kernel", kernel.release},
            {"kernel_version", name.version},
            {"lockdown", kernel.lockdown.empty() ? Json() : Json(kernel.lockdown)},
            {"cpus", sysconf(_SC_NPROCESSORS_ONLN)}};
}

struct MissingRange {
    std::string name, reason;
};

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

SessionSummary LiveProfile::summarize(double duration_s) {
    SessionSummary summary;
    summary.duration_s = duration_s;
    summary.processes = processes_;
    summary.warnings = warnings_;

    std::map<std::uint32_t, std::uint64_t> open_by_site;
    for (const OpenThread& thread : open_threads_) {
        for (const std::uint32_t site : thread.sites) ++open_by_site[site];
    }
    for (const auto& [site, count] : session_->open_detached_scopes()) open_by_site[site] += count;

    const hostrange_session_counters session = session_->session_counters();
    hostrange_site_counters total{};
    std::uint64_t open_total = 0, unbalanced = 0;
    const std::vector<NumberedSite>& sites = session_->sites();
    std::map<FileIdentity, Json> sites_by_file;
    std::map<std::uint32_t, std::uint64_t> doubtful_by_range;  // scopes
    std::map<std::uint32_t, std::uint64_t> unwound_by_range, orphans_by_range;
    std::set<std::uint32_t> entered;  // ranges
    Json marker_sites = Json::array();
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const hostrange_site_counters counters = session_->site_counters(i);
        const std::uint64_t open = open_by_site.count(i) ? open_by_site.at(i) : 0;
        open_total += open;
        if (counters.entries != counters.exits + counters.by_exception + counters.abandoned + open) ++unbalanced;
        total.exits += counters.exits;
        total.by_exception += counters.by_exception;
        total.abandoned += counters.abandoned;
        total.overflow += counters.overflow;
        total.lost += counters.lost;
        total.orphans += counters.orphans;
        const std::uint64_t unwound = counters.abandoned + (session.dead_forgotten ? counters.by_exception : 0);
        if (counters.entries) entered.insert(sites[i].range);
        if (unwound) unwound_by_range[sites[i].range] += unwound;
        if (counters.orphans) orphans_by_range[sites[i].range] += counters.orphans;
        if (counters.lost) summary.lost_by_range[sites[i].range] += counters.lost;
        if (counters.lost || counters.overflow) summary.inexact_ranges.insert(sites[i].range);

        const FilePlan& plan = files_.at(sites[i].file)->plan;
        if (sites[i].range == kMarkerRange) {
            const MarkerSite& site = files_.at(sites[i].file)->markers.sites[sites[i].plan_site];
            Json entry = {{"number", i},
                          {"marker", marker_name(site.kind)},
                          {"file_offset", site.file_offset},
                          {"instruction", site.instruction.text},
                          {"class", instruction_class_name(site.instruction.instruction_class)}};
            if (opens_scope(sites[i].kind)) {
                entry["counters"] = counters_json(counters, open);
            } else {
                entry["orphans"] = counters.orphans;
            }
            marker_sites.push_back(std::move(entry));
            continue;
        }
        const Site& site = plan.sites[sites[i].plan_site];
        if (counters.entries && !plan.functions[site.function].doubt.empty())
            doubtful_by_range[site.range] += counters.entries;
        Json entry = {{"number", i},
                      {"range", map_.ranges[site.range].name},
                      {"kind", site_kind_name(site.kind)},
                      {"symbol", plan.functions[site.function].symbol},
                      {"file_offset", site.file_offset},
                      {"instruction", site.instruction.text},
                      {"class", instruction_class_name(site.instruction.instruction_class)}};
        if (opens_scope(sites[i].kind)) {
            entry["labels"] = plan.functions[site.function].labels;
            entry["counters"] = counters_json(counters, open);
        } else {
            entry["orphans"] = counters.orphans;
        }
        sites_by_file[sites[i].file].push_back(std::move(entry));
    }

    for (const PlannedFile* file : order_) {
        if (!file->overwritten) continue;
        for (const PlannedFunction& function : file->plan.functions) summary.inexact_ranges.insert(function.range);
    }

    const std::vector<MissingRange> missing = missing_ranges(map_, plans());
    const AssemblyLosses& losses = assembler_.losses();
    const auto warn = [&](std::string text) { summary.warnings.push_back(std::move(text)); };
    if (total.lost) {
        warn(
            fmt::format("{} lost, the ring buffer being full: their totals are exact, their rows are not; use a larger "
                        "--ring-size",
                        counted(total.lost, "scope was", "scopes were")));
    }
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>
        inlined;  // by range: calls that are not placed, all
    for (const FilePlan* plan : plans()) {
        for (const InlinedCount& count : plan->inlined) {
            inlined[count.range].first += count.total - count.placed;
            inlined[count.range].second += count.total;
        }
    }
    for (const auto& [range, calls] : inlined) {
        if (calls.first == 0) continue;
        summary.inexact_ranges.insert(range);
        warn(fmt::format("{} of the {} of {} cannot be probed and {} not counted", calls.first,
                         counted(calls.second, "inlined call", "inlined calls"), map_.ranges[range].name,
                         calls.first == 1 ? "is" : "are"));
    }
    if (const std::string operators = operators_without_cold_calls(); !operators.empty()) {
        warn(fmt::format(
            "no call of {} was seen to be cold, though the profile began with the process: their first calls "
            "stand among the warm ones (a range that makes a call cold is not seen in them)",
            operators));
    }
    for (const auto& [range, scopes] : collector_->totals().uncertain_conditions) {
        summary.inexact_ranges.insert(range);
        warn(
            fmt::format("the count of {} may be off: whether {} inside of another range hangs on calls that never "
                        "returned (longjmp, for instance)",
                        map_.ranges[range].name, counted(scopes, "scope of it was", "scopes of it were")));
    }
    for (const auto& [range, scopes] : doubtful_by_range) {
        summary.inexact_ranges.insert(range);
        warn(
            fmt::format("the count of {} may be off: {} of inlined calls that the compiler has copied or split; "
                        "`hostrange-bpf probes` says which",
                        map_.ranges[range].name, counted(scopes, "scope is", "scopes are")));
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
    if (total.overflow) {
        warn(fmt::format("{} deeper than {} open ones and not measured",
                         counted(total.overflow, "scope was", "scopes were"), HOSTRANGE_MAX_DEPTH));
    }
    if (total.orphans) {
        warn(fmt::format("{} that had begun before the probes were there, or whose stack was not told apart",
                         counted(total.orphans, "exit ended no scope: of a call", "exits ended no scope: of calls")));
    }
    // Their frames looked dead, and then they returned, perhaps.
    for (const auto& [range, unwound] : unwound_by_range) {
        const auto orphans = orphans_by_range.find(range);
        if (orphans == orphans_by_range.end() || range >= map_.ranges.size()) continue;
        summary.inexact_ranges.insert(range);
        warn(fmt::format(
            "up to {} of {} may have returned and not been counted: calls that were under way when probes were placed, "
            "or on fibers that change threads or whose stacks share a memory area",
            counted(std::min(unwound, orphans->second), "unwound scope", "unwound scopes"), map_.ranges[range].name));
    }
    if (session.ended_late || session.out_of_order) {
        for (const std::uint32_t range : entered) {
            if (range >= map_.ranges.size()) continue;  // of markers
            if (map_.ranges[range].inside.empty() && map_.ranges[range].not_inside.empty()) continue;
            if (!summary.inexact_ranges.insert(range).second) continue;
            warn(fmt::format(
                "the count of {} may be off: fibers switch inside of scopes, so what lies inside of what is "
                "not certain",
                map_.ranges[range].name));
        }
    }
    if (open_total)
        warn(fmt::format("{} still open at the end and not measured", counted(open_total, "scope was", "scopes were")));
    if (session.no_state)
        warn(fmt::format("{} without memory for its thread's stack of scopes",
                         counted(session.no_state, "hit found the kernel", "hits found the kernel")));
    if (session.lost_events) {
        warn(fmt::format("{} lost: some processes or libraries may not have been profiled",
                         counted(session.lost_events, "process event was", "process events were")));
    }
    if (collector_->budget().coarse_sets) {
        warn(fmt::format("{} outgrew the sample memory: quantiles are within 0.78 %; use a larger --sample-memory",
                         counted(collector_->budget().coarse_sets, "set of samples", "sets of samples")));
    }
    if (unrecorded_) {
        warn(fmt::format("{} while probes were being added for a new library or process, and not recorded",
                         counted(unrecorded_, "call tree began", "call trees began")));
    }
    const MarkLog& marks = collector_->marks();
    const std::uint64_t run_again =
        std::count_if(marks.cases().begin(), marks.cases().end(), [](const MarkedCase& one) { return one.runs > 1; });
    std::uint64_t outside_cases = 0, outside_phases = 0;
    for (const auto& [key, samples] : collector_->rows()) {
        if (key.test_case == MarkLog::kNoCase)
            outside_cases += samples->inclusive.count();
        else if (key.outside_phases && marks.cases()[key.test_case].has_phases)
            outside_phases += samples->inclusive.count();
    }
    if (outside_phases)
        warn(fmt::format("{} of cases with phases are left out, being outside of these",
                         counted(outside_phases, "scope", "scopes")));
    if (marks.has_cases() && outside_cases && !options_.output.empty() && options_.fields == Fields::kUpstream)
        warn(fmt::format("{} in no case: in the table and with --fields=all, not in the ten fields",
                         counted(outside_cases, "scope was", "scopes were")));
    if (run_again)
        warn(fmt::format("{} more than once: the rows hold all its runs", counted(run_again, "case ran", "cases ran")));
    if (session.lost_marks)
        warn(fmt::format("{} lost, their ring being full: calls may stand in the wrong case or phase",
                         counted(session.lost_marks, "mark was", "marks were")));
    if (marks.losses().cut)
        warn(fmt::format("{} too long and cut: an ellipsis stands for the rest",
                         counted(marks.losses().cut, "marker text was", "marker texts were")));
    if (marks.losses().unreadable)
        warn(fmt::format("{} not be read and shows as \"?\"",
                         counted(marks.losses().unreadable, "marker text could", "marker texts could")));
    if (marks.losses().unbalanced)
        warn(fmt::format("{} within another one, or ended without having begun",
                         counted(marks.losses().unbalanced, "case or phase was begun", "cases or phases were begun")));
    if (unbalanced) {
        warn(fmt::format("{} whose counters do not add up: please report this",
                         counted(unbalanced, "there is a site", "there are sites")));
    }
    if (attached_files() > 0) {
        for (std::string& line : what_is_missing(missing, plans())) warn(std::move(line));
    } else {
        summary.nothing_probed = attached_markers() == 0;
        warn(fmt::format("{} (probe map: {})", nothing_found(map_, "what ran", plans(), other_files()).what(),
                         map_.path));
    }
    warn("times are raw: they include what the probes themselves cost");

    Json files = Json::array();
    for (const PlannedFile* file : order_) {
        const FilePlan& plan = file->plan;
        Json unavailable = Json::array();
        for (const Unavailable& one : plan.unavailable) {
            if (one.symbol.empty()) continue;
            unavailable.push_back(
                {{"range", map_.ranges[one.range].name}, {"symbol", one.symbol}, {"reason", one.reason}});
        }
        Json functions = Json::array();
        for (const PlannedFunction& function : plan.functions) {
            functions.push_back({{"range", map_.ranges[function.range].name},
                                 {"kind", placement_name(function.kind)},
                                 {"name", function.name},
                                 {"symbol", function.symbol},
                                 {"other_symbols", function.other_symbols},
                                 {"container", function.container},
                                 {"labels", function.labels},
                                 {"ends", function.ends},
                                 {"note", function.note},
                                 {"doubt", function.doubt}});
        }
        const auto numbered = sites_by_file.find(plan.identity);
        files.push_back({{"path", plan.path},
                         {"build_id", plan.build_id},
                         {"stripped", plan.stripped},
                         {"debug_info", plan.debug_info},
                         {"debug_file", plan.debug_file},
                         {"inlined", inlined_json(map_, plan)},
                         {"problem", plan.problem},
                         {"probes", file->sites},
                         {"functions", std::move(functions)},
                         {"unavailable", std::move(unavailable)},
                         {"sites", numbered == sites_by_file.end() ? Json::array() : std::move(numbered->second)}});
    }
    Json processes = Json::array();
    for (const auto& [key, process] : processes_) {
        processes.push_back({{"pid", key.process_id},
                             {"start_ns", key.start_ns},
                             {"comm", process.comm},
                             {"container", process.container}});
    }
    Json open_threads = Json::array();
    for (const OpenThread& thread : open_threads_) {
        open_threads.push_back({{"pid", thread.process_id}, {"thread", thread.thread_id}, {"sites", thread.sites}});
    }
    Json not_seen = Json::array();
    for (const MissingRange& range : missing) not_seen.push_back({{"range", range.name}, {"reason", range.reason}});
    const CollectionTotals& collected = collector_->totals();
    summary.meta = {
        {"tool", "hostrange-bpf"},
        {"version", HOSTRANGE_VERSION},
        {"written", utc_now()},
        {"duration_s", duration_s},
        {"host", host_json(session_->kernel())},
        {"attach", attach_mode_name(session_->mode())},
        {"probe_map", map_.path},
        {"ring_bytes", options_.ring_bytes},
        {"calibration", nullptr},
        {"totals",
         {{"trees", collected.trees},
          {"unfinished_trees", collected.unfinished_trees},
          {"scopes", collected.scopes},
          {"unwound", collected.unwound},
          {"outside_condition", collected.outside_condition},
          {"exits", total.exits},
          {"by_exception", total.by_exception},
          {"abandoned", total.abandoned},
          {"open", open_total},
          {"overflow", total.overflow},
          {"orphans", total.orphans}}},
        {"lost",
         {{"scopes", total.lost},
          {"trees_in_kernel", session.lost_trees},
          {"broken_trees", losses.broken_trees},
          {"broken_tree_scopes", losses.broken_tree_scopes},
          {"malformed_records", losses.malformed_records},
          {"events", session.lost_events},
          {"no_state", session.no_state},
          {"unrecorded_trees", unrecorded_}}},
        {"stacks",
         {{"other_stack", session.other_stack},
          {"stack_unknown", session.stack_unknown},
          {"ended_late", session.ended_late},
          {"dead_forgotten", session.dead_forgotten},
          {"out_of_order", session.out_of_order}}},
        {"unbalanced_sites", unbalanced},
        {"not_seen", std::move(not_seen)},
        {"marks",
         {{"sessions", marks.sessions()},
          {"cases", marks.cases().size() - 1},
          {"cases_run_more_than_once", run_again},
          {"scopes_outside_cases", outside_cases},
          {"scopes_outside_phases", outside_phases},
          {"lost", session.lost_marks},
          {"unreadable_texts", marks.losses().unreadable},
          {"cut_texts", marks.losses().cut},
          {"unbalanced", marks.losses().unbalanced},
          {"malformed", marks.losses().malformed},
          {"sites", std::move(marker_sites)}}},
        {"sample_memory",
         {{"limit_bytes", collector_->budget().limit_bytes},
          {"used_bytes", collector_->budget().used_bytes},
          {"coarse_sets", collector_->budget().coarse_sets}}},
        {"processes", std::move(processes)},
        {"open_threads", std::move(open_threads)},
        {"files", std::move(files)},
        {"warnings", summary.warnings},
    };
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
