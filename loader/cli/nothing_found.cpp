// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/nothing_found.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/probes/edit_distance.h"

namespace hostrange {
namespace {

std::string fixed_part(const std::string& pattern) {
    std::string text;
    for (const char c : pattern) {
        if (c != '*' && c != '?') text += c;
    }
    return text;
}

std::vector<std::string> nearest(const ProbeMap& map, const std::set<std::string>& names) {
    constexpr std::size_t kShown = 3;
    std::vector<std::pair<std::size_t, std::string>> ranked;
    for (const std::string& name : names) {
        std::size_t best = name.size();
        for (const TargetDefinition& target : map.targets) {
            for (const std::string& pattern : target.file_patterns) {
                best = std::min(best, edit_distance(name, fixed_part(pattern)));
            }
        }
        ranked.emplace_back(best, name);
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<std::string> result;
    for (std::size_t i = 0; i < std::min(kShown, ranked.size()); ++i) result.push_back(ranked[i].second);
    return result;
}

}  // namespace

Failure nothing_found(const ProbeMap& map, const std::string& whom, const std::vector<const FilePlan*>& plans,
                      const std::set<std::string>& other_files) {
    std::string mapped;
    bool stripped = false;
    for (const FilePlan* plan : plans) {
        const std::string base_name = plan->path.substr(plan->path.rfind('/') + 1);
        if (targets_of_file(map, base_name).empty()) continue;
        stripped |= plan->stripped;
        mapped += fmt::format("{}{} ({})", mapped.empty() ? "" : ", ", plan->path,
                              !plan->problem.empty() ? plan->problem
                              : plan->stripped       ? "stripped: only its exported functions are known"
                                                     : "no function matches");
    }
    if (!mapped.empty()) {
        return Failure(
            ExitCode::kNoFunction,
            fmt::format("{} maps files of the probe map, but none of their functions can be probed: {}", whom, mapped),
            stripped ? "use a library with its symbol table (not stripped), or a probe map for what it exports"
                     : fmt::format(
                           "`hostrange-bpf probes` with the same options shows which functions come near the patterns "
                           "in {}",
                           map.path));
    }
    std::vector<std::string> patterns;
    for (const TargetDefinition& target : map.targets) {
        for (const std::string& pattern : target.file_patterns) {
            if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(pattern);
        }
    }
    return Failure(ExitCode::kNothingToProbe,
                   fmt::format("{} maps no file of the probe map; looked for {}; nearest names there: {}", whom,
                               fmt::join(patterns, ", "), fmt::join(nearest(map, other_files), ", ")),
                   fmt::format("is the library loaded yet? Use `hostrange-bpf run -- COMMAND` to catch it as it loads, "
                               "or another --probe-map (this one: {})",
                               map.path));
}

}  // namespace hostrange
