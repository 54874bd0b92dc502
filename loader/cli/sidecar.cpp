// SPDX-License-Identifier: Apache-2.0
// The sidecar of a report: all that is needed to judge the run.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "loader/cli/live_profile.h"
#include "loader/cli/plan_names.h"

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

}  // namespace

Json LiveProfile::sidecar(const ProfileCounts& counts, const SessionSummary& summary) const {
    const std::vector<NumberedSite>& sites = session_->sites();
    std::map<FileIdentity, Json> sites_by_file;
    Json marker_sites = Json::array();
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const auto& [counters, open] = counts.sites[i];
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
    for (const MissingRange& range : counts.missing)
        not_seen.push_back({{"range", range.name}, {"reason", range.reason}});
    const AssemblyLosses& losses = assembler_.losses();
    const MarkLog& marks = collector_->marks();
    const CollectionTotals& collected = collector_->totals();
    return {
        {"tool", "hostrange-bpf"},
        {"version", HOSTRANGE_VERSION},
        {"written", utc_now()},
        {"duration_s", summary.duration_s},
        {"host", host_json(session_->kernel())},
        {"attach", attach_mode_name(session_->mode())},
        {"probe_map", map_.path},
        {"ring_bytes", options_.ring_bytes},
        {"calibration", calibration_ ? calibration_json(calibration_->calibration) : Json()},
        {"calibration_age_s", calibration_ ? Json(calibration_->age_s) : Json()},
        {"calibration_drift", calibration_ ? Json(drift_) : Json()},
        {"totals",
         {{"trees", collected.trees},
          {"unfinished_trees", collected.unfinished_trees},
          {"scopes", collected.scopes},
          {"unwound", collected.unwound},
          {"outside_condition", collected.outside_condition},
          {"exits", counts.total.exits},
          {"by_exception", counts.total.by_exception},
          {"abandoned", counts.total.abandoned},
          {"open", counts.open},
          {"overflow", counts.total.overflow},
          {"orphans", counts.total.orphans}}},
        {"lost",
         {{"scopes", counts.total.lost},
          {"trees_in_kernel", counts.session.lost_trees},
          {"broken_trees", losses.broken_trees},
          {"broken_tree_scopes", losses.broken_tree_scopes},
          {"malformed_records", losses.malformed_records},
          {"events", counts.session.lost_events},
          {"no_state", counts.session.no_state},
          {"unrecorded_trees", unrecorded_}}},
        {"stacks",
         {{"other_stack", counts.session.other_stack},
          {"stack_unknown", counts.session.stack_unknown},
          {"ended_late", counts.session.ended_late},
          {"dead_forgotten", counts.session.dead_forgotten},
          {"out_of_order", counts.session.out_of_order}}},
        {"unbalanced_sites", counts.unbalanced},
        {"not_seen", std::move(not_seen)},
        {"marks",
         {{"sessions", marks.sessions()},
          {"cases", marks.cases().size() - 1},
          {"cases_run_more_than_once", counts.cases_run_again},
          {"scopes_outside_cases", counts.outside_cases},
          {"scopes_outside_phases", counts.outside_phases},
          {"lost", counts.session.lost_marks},
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
}

}  // namespace hostrange
