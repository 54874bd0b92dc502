// SPDX-License-Identifier: Apache-2.0
// The listing of what a profile would place. It attaches nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>

#include "loader/cli/calibration_store.h"
#include "loader/cli/nothing_found.h"
#include "loader/cli/options.h"
#include "loader/cli/plan_names.h"
#include "loader/cli/target_process.h"
#include "loader/failure.h"
#include "loader/probes/edit_distance.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

using Json = nlohmann::ordered_json;

struct Listing {
    const ProbeMap& map;
    std::vector<FilePlan> plans;
    std::set<std::string> other_files;  // base names of files that match no target
    std::vector<bool> wanted;           // by range
};

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

std::vector<bool> wanted_ranges(const ProbeMap& map, const std::vector<std::string>& names) {
    std::vector<bool> wanted(map.ranges.size(), names.empty());
    for (const std::string& name : names) {
        const auto found = std::find_if(map.ranges.begin(), map.ranges.end(),
                                        [&](const RangeDefinition& range) { return range.name == name; });
        if (found != map.ranges.end()) {
            wanted[found - map.ranges.begin()] = true;
            continue;
        }
        const auto nearest = std::min_element(
            map.ranges.begin(), map.ranges.end(), [&](const RangeDefinition& one, const RangeDefinition& other) {
                return edit_distance(one.name, name) < edit_distance(other.name, name);
            });
        throw Failure(ExitCode::kUsage, fmt::format("the probe map {} has no range '{}'", map.path, name),
                      fmt::format("did you mean '{}'?", nearest->name));
    }
    return wanted;
}

MappedFile named_file(const std::string& path) {
    MappedFile file;
    file.path = file.open_path = path;
    file.base_name = base_name(path);
    if (!std::filesystem::exists(path))
        throw Failure(ExitCode::kUsage, path + ": no such file", "name an ELF file: a program or a shared library");
    return file;
}

void add_file(Listing& listing, const MappedFile& file, const PlanSettings& settings) {
    if (targets_of_file(listing.map, file.base_name).empty()) {
        listing.other_files.insert(file.base_name);
        return;
    }
    FilePlan plan = plan_file(listing.map, file, settings);
    if (plan.too_many_functions) throw_too_many(plan);
    listing.plans.push_back(std::move(plan));
}

void add_process(Listing& listing, pid_t process, const PlanSettings& settings) {
    expect_program(process);
    const std::optional<std::vector<MappedFile>> files = read_process_maps(process);
    if (!files) throw unreadable_process(process, errno);
    for (const MappedFile& file : *files) {
        if (!file.open_path.empty()) {
            add_file(listing, file, settings);
        } else if (!targets_of_file(listing.map, file.base_name).empty()) {
            throw Failure(ExitCode::kOtherUser, fmt::format("{} of process {} cannot be opened", file.path, process),
                          "run it with sudo");
        }
    }
}

std::string labels_text(const std::map<std::string, std::string>& labels) {
    std::string text;
    for (const auto& [name, value] : labels) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
    return text.empty() ? "-" : text;
}

std::vector<const Site*> sites_in_order(const Listing& listing, const FilePlan& plan) {
    std::vector<const Site*> sites;
    for (const Site& site : plan.sites)
        if (listing.wanted[site.range]) sites.push_back(&site);
    std::stable_sort(sites.begin(), sites.end(), [](const Site* one, const Site* other) {
        return std::pair(one->range, one->function) < std::pair(other->range, other->function);
    });
    return sites;
}

// What the probes of a scope cost, entry and end together, at the sites that open one; by index into plan.sites.
// Nothing where no calibration of this host is kept.
std::vector<std::optional<std::int64_t>> costs_of(const FilePlan& plan) {
    std::vector<std::optional<std::int64_t>> costs(plan.sites.size());
    static const std::optional<StoredCalibration> kept = kept_calibration();
    if (!kept) return costs;
    const std::vector<ScopeProbes> probes = scope_probes_of_plan(plan);
    for (std::size_t i = 0; i < costs.size(); ++i)
        if (opens_scope(plan.sites[i].kind)) costs[i] = probe_cost(kept->calibration, probes[i]).full_ns;
    return costs;
}

// Names come from files that anyone may have made.
template <typename... Arguments>
void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
    const bool ends_line = !text.empty() && text.back() == '\n';
    const std::string_view line = std::string_view(text).substr(0, text.size() - (ends_line ? 1 : 0));
    fmt::print("{}{}", printable(line, true), ends_line ? "\n" : "");
}

// One line a site, the same columns in each; what is said about them begins with #.
void print_file(const Listing& listing, const FilePlan& plan) {
    put("# {}{}{}\n", plan.path, plan.build_id.empty() ? "" : "  build-id " + plan.build_id,
        plan.problem.empty() ? "" : "  " + plan.problem);
    if (plan.problem.empty() && plan.stripped) put("# it is stripped: only functions that it exports are known\n");
    if (!plan.debug_file.empty()) put("# symbols and debug information from {}\n", plan.debug_file);
    if (plan.problem.empty() && !plan.debug_info)
        put("# it has no debug information: inlined functions are not seen\n");
    for (const std::string& warning : plan.warnings) put("# {}\n", warning);

    const std::vector<std::optional<std::int64_t>> costs = costs_of(plan);
    std::vector<std::vector<std::string>> rows = {
        {"RANGE", "KIND", "OFFSET", "SITE", "WHY", "CLASS", "COST", "INSTRUCTION", "LABELS", "FUNCTION"}};
    for (const Site* site : sites_in_order(listing, plan)) {
        const PlannedFunction& function = plan.functions[site->function];
        const std::optional<std::int64_t> cost_ns = costs[site - plan.sites.data()];
        rows.push_back({listing.map.ranges[site->range].name, placement_name(function.kind),
                        fmt::format("{:#x}", site->file_offset), site_kind_name(site->kind), why_there(*site, function),
                        instruction_class_name(site->instruction.instruction_class),
                        cost_ns ? fmt::format("{} ns", *cost_ns) : "-", site->instruction.text,
                        labels_text(function.labels),
                        function.name + (function.kind == PlannedFunction::Kind::kInlined
                                             ? "  [inlined into " + function.container + "]"
                                             : "")});
    }
    std::vector<std::size_t> widths(rows.front().size());
    for (const std::vector<std::string>& row : rows)
        for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    if (rows.size() > 1) {
        for (const std::vector<std::string>& row : rows) {
            for (std::size_t i = 0; i + 1 < row.size(); ++i) put("{:<{}}  ", row[i], widths[i]);
            put("{}\n", row.back());
        }
    }
    for (const PlannedFunction& function : plan.functions) {
        if (!listing.wanted[function.range]) continue;
        const std::string& range = listing.map.ranges[function.range].name;
        if (!function.note.empty()) put("# {}: {}: {}\n", range, function.name, function.note);
        if (!function.doubt.empty())
            put("# {}: {} in {} may be miscounted: {}\n", range, function.name, function.container, function.doubt);
    }
    std::map<std::pair<std::uint32_t, std::string>, unsigned> ends;
    for (const PlannedFunction& function : plan.functions)
        if (listing.wanted[function.range] && !function.ends.empty()) ++ends[{function.range, function.ends}];
    for (const auto& [key, count] : ends)
        put("# {}: ends of {} seen by {}\n", listing.map.ranges[key.first].name,
            count == 1 ? "1 function" : fmt::format("{} functions", count), key.second);
    for (const InlinedCount& count : plan.inlined)
        if (listing.wanted[count.range])
            put("# {}: {} of {} instances placed{}: {}\n", listing.map.ranges[count.range].name, count.placed,
                count.total, count.doubtful ? fmt::format(", {} of them may be miscounted", count.doubtful) : "",
                count.name);
    for (const Unavailable& one : plan.unavailable)
        if (listing.wanted[one.range] && !one.symbol.empty())
            put("# {}: not placed: {}: {}\n", listing.map.ranges[one.range].name, one.symbol, one.reason);
    put("\n");
}

// A range that is in none of the files, with what comes near in any of them.
struct NotFound {
    std::uint32_t range;
    std::string reason;
    std::vector<std::string> candidates;
};

std::vector<NotFound> not_found(const Listing& listing) {
    std::vector<NotFound> result;
    for (std::uint32_t range = 0; range < listing.map.ranges.size(); ++range) {
        if (!listing.wanted[range]) continue;
        bool begins = false, ends = !listing.map.ranges[range].is_point_to_point();
        NotFound missing{range, "no file of its targets is there", {}};
        for (const FilePlan& plan : listing.plans) {
            for (const Site& site : plan.sites) {
                begins |= site.range == range && opens_scope(site.kind);
                ends |= site.range == range && site.kind == SiteKind::kEnd;
            }
            for (const Unavailable& one : plan.unavailable) {
                if (one.range != range || !one.symbol.empty()) continue;
                missing.reason = one.reason;
                for (const std::string& name : one.candidates)
                    if (missing.candidates.size() < 3) missing.candidates.push_back(name);
            }
        }
        if (begins && ends) continue;
        if (listing.map.ranges[range].is_point_to_point())
            missing.reason = begins ? "no point where it ends matches" : "no point where it begins matches";
        result.push_back(std::move(missing));
    }
    return result;
}

Json file_json(const Listing& listing, const FilePlan& plan) {
    Json sites = Json::array(), unavailable = Json::array();
    const std::vector<std::optional<std::int64_t>> costs = costs_of(plan);
    for (const Site* site : sites_in_order(listing, plan)) {
        const PlannedFunction& function = plan.functions[site->function];
        const std::optional<std::int64_t> cost_ns = costs[site - plan.sites.data()];
        Json one = {{"range", listing.map.ranges[site->range].name},
                    {"kind", placement_name(function.kind)},
                    {"function", function.name},
                    {"function_offset", function.file_offset},
                    {"symbol", function.symbol},
                    {"other_symbols", function.other_symbols},
                    {"container", function.container},
                    {"labels", function.labels},
                    {"site", site_kind_name(site->kind)},
                    {"offset", site->file_offset},
                    {"address", site->instruction.address},
                    {"instruction", site->instruction.text},
                    {"class", instruction_class_name(site->instruction.instruction_class)},
                    {"why", why_there(*site, function)},
                    {"cost_ns", cost_ns ? Json(*cost_ns) : Json()},
                    {"ends", function.ends},
                    {"note", function.note},
                    {"doubt", function.doubt}};
        if (site->condition) one["condition"] = *site->condition;
        sites.push_back(std::move(one));
    }
    for (const Unavailable& one : plan.unavailable)
        if (listing.wanted[one.range] && !one.symbol.empty())
            unavailable.push_back(
                {{"range", listing.map.ranges[one.range].name}, {"function", one.symbol}, {"reason", one.reason}});
    return {{"path", plan.path},
            {"build_id", plan.build_id},
            {"stripped", plan.stripped},
            {"debug_info", plan.debug_info},
            {"debug_file", plan.debug_file},
            {"problem", plan.problem},
            {"warnings", plan.warnings},
            {"sites", std::move(sites)},
            {"unavailable", std::move(unavailable)},
            {"inlined", inlined_json(listing.map, plan)}};
}

void print_json(const Listing& listing) {
    Json files = Json::array(), missing = Json::array();
    for (const FilePlan& plan : listing.plans) files.push_back(file_json(listing, plan));
    for (const NotFound& one : not_found(listing))
        missing.push_back(
            {{"range", listing.map.ranges[one.range].name}, {"reason", one.reason}, {"candidates", one.candidates}});
    const Json all = {{"probe_map", listing.map.path}, {"files", std::move(files)}, {"not_found", std::move(missing)}};
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int list_probes(const ProfileOptions& options, const ProbesOptions& asked) {
    std::signal(SIGPIPE, SIG_DFL);  // a listing whose reader has gone ends without a word, as in `| head`
    const ProbeMap map = load_probe_map(options.probe_map.empty() ? default_probe_map() : options.probe_map);
    PlanSettings settings = plan_settings(options);
    settings.want_candidates = true;
    Listing listing{map, {}, {}, wanted_ranges(map, asked.ranges)};
    for (const std::string& path : asked.files) add_file(listing, named_file(path), settings);
    for (const pid_t process : asked.processes) add_process(listing, process, settings);

    if (listing.plans.empty()) {
        const std::string whom = asked.files.empty() ? fmt::format("process {}", asked.processes.front())
                                                     : fmt::format("{}", fmt::join(asked.files, ", "));
        if (!asked.files.empty()) {
            std::vector<std::string> patterns;
            for (const TargetDefinition& target : map.targets)
                patterns.insert(patterns.end(), target.file_patterns.begin(), target.file_patterns.end());
            throw Failure(
                ExitCode::kNothingToProbe,
                fmt::format("{}: no target of the probe map has such a name; it has {}", whom,
                            fmt::join(patterns, ", ")),
                fmt::format("add its name to a target's `files` in a map of your own (this one: {})", map.path));
        }
        throw nothing_found(map, whom, {}, listing.other_files);
    }
    if (asked.json) {
        print_json(listing);
    } else {
        for (const FilePlan& plan : listing.plans) print_file(listing, plan);
        for (const NotFound& one : not_found(listing)) {
            put("# {}: not found: {}\n", map.ranges[one.range].name, one.reason);
            for (const std::string& name : one.candidates) put("#   near: {}\n", name);
        }
    }
    std::fflush(stdout);
    const bool any = std::any_of(listing.plans.begin(), listing.plans.end(),
                                 [&](const FilePlan& plan) { return !sites_in_order(listing, plan).empty(); });
    return any ? 0 : static_cast<int>(ExitCode::kNoFunction);
}

}  // namespace hostrange
