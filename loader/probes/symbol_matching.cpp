// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/symbol_matching.h"

#include <fnmatch.h>
#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cctype>

namespace hostrange {

namespace {

bool is_number(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

CloneSuffix clone_suffix(std::string_view symbol) {
    CloneSuffix result;
    result.base = symbol;
    result.root = symbol.substr(0, symbol.find('.', 1));
    // From the back: the last suffix says what the symbol is; a .part before it makes it a part whatever follows.
    std::string_view rest = symbol;
    std::string_view after;
    bool last = true;
    for (std::size_t dot = rest.rfind('.'); dot != std::string_view::npos && dot > 0; dot = rest.rfind('.')) {
        const std::string_view token = rest.substr(dot + 1);
        rest = rest.substr(0, dot);
        if (last && token == "cold") {
            result.cold = true;
            result.numbered_cold = !after.empty();
            result.base = rest;
        } else if (token == "part" && is_number(after)) {
            result.part = true;
        }
        if (!is_number(token)) last = false;
        after = token;
    }
    return result;
}

std::vector<std::uint32_t> ranges_of_file(const ProbeMap& map, std::string_view base_name) {
    const std::vector<const TargetDefinition*> targets = targets_of_file(map, base_name);
    std::vector<std::uint32_t> result;
    for (std::uint32_t index = 0; index < map.ranges.size(); ++index) {
        const std::vector<std::string>& wanted = map.ranges[index].targets;
        const bool looks_here = std::any_of(targets.begin(), targets.end(), [&](const TargetDefinition* target) {
            return std::find(wanted.begin(), wanted.end(), target->name) != wanted.end();
        });
        if (looks_here) result.push_back(index);
    }
    return result;
}

// All patterns in one automaton: nearly every symbol of a file matches none of them.
struct SymbolMatcher::Prefilter {
    RE2::Set set;
    explicit Prefilter(const RE2::Options& options) : set(options, RE2::UNANCHORED) {}
};

SymbolMatcher::SymbolMatcher(const ProbeMap& map, std::string_view base_name) : map_(map) {
    for (const std::uint32_t range : ranges_of_file(map, base_name)) add_range(range);
    build_prefilter();
}

SymbolMatcher::SymbolMatcher(const ProbeMap& map) : map_(map) {
    for (std::uint32_t range = 0; range < map.ranges.size(); ++range) add_range(range);
    build_prefilter();
}

SymbolMatcher::~SymbolMatcher() = default;

void SymbolMatcher::add_range(std::uint32_t range) {
    const RangeDefinition& definition = map_.ranges[range];
    if (!definition.functions.empty() || !definition.symbols.empty()) {
        Rule rule{range, Role::kScope, {}, &definition.symbols};
        for (const FunctionPattern& pattern : definition.functions) rule.patterns.push_back(&pattern);
        rules_.push_back(std::move(rule));
    }
    add_points(range, definition.begin, Role::kBeginEntry, Role::kBeginReturn);
    add_points(range, definition.end, Role::kEndEntry, Role::kEndReturn);
}

void SymbolMatcher::add_points(std::uint32_t range, const std::vector<Point>& points, Role entry, Role leave) {
    for (const auto& [kind, role] : {std::pair{Point::Kind::kEntry, entry}, std::pair{Point::Kind::kReturn, leave}}) {
        Rule rule{range, role, {}, nullptr};
        for (const Point& point : points)
            if (point.kind == kind) rule.patterns.push_back(&point.function);
        if (!rule.patterns.empty()) rules_.push_back(std::move(rule));
    }
}

void SymbolMatcher::build_prefilter() {
    RE2::Options options;
    options.set_max_mem(64 << 20);
    options.set_log_errors(false);
    auto prefilter = std::make_unique<Prefilter>(options);
    for (const Rule& rule : rules_)
        for (const FunctionPattern* pattern : rule.patterns) {
            // A set has one set of options for all its patterns; those that need others are searched one by one.
            if (pattern->expression->options().case_sensitive() != options.case_sensitive()) return;
            if (prefilter->set.Add(pattern->expression->pattern(), nullptr) < 0) return;
        }
    if (prefilter->set.Compile()) prefilter_ = std::move(prefilter);
}

bool SymbolMatcher::may_match(const std::string& demangled) const {
    if (!prefilter_) return true;
    RE2::Set::ErrorInfo error;
    return prefilter_->set.Match(demangled, nullptr, &error) || error.kind != RE2::Set::kNoError;
}

bool SymbolMatcher::match_rule(const Rule& rule, const std::string& symbol, const std::string& demangled, bool search,
                               SymbolMatch& match) const {
    match = {rule.range, rule.role, map_.ranges[rule.range].labels};
    const bool by_symbol = rule.symbols != nullptr &&
                           std::any_of(rule.symbols->begin(), rule.symbols->end(),
                                       [&](const auto& glob) { return fnmatch(glob.c_str(), symbol.c_str(), 0) == 0; });
    if (by_symbol) return true;
    if (!search) return false;
    for (const FunctionPattern* pattern : rule.patterns) {
        const int groups = pattern->expression->NumberOfCapturingGroups();
        std::vector<re2::StringPiece> found(groups + 1);
        if (!pattern->expression->Match(demangled, 0, demangled.size(), RE2::UNANCHORED, found.data(), groups + 1))
            continue;
        for (int group = 1; group <= groups; ++group) {
            if (static_cast<std::size_t>(group) > pattern->label_names.size()) break;
            const std::string& label = pattern->label_names[group - 1];
            // A group that took no part in the match says nothing, and leaves a fixed label as it is.
            if (label.empty() || found[group].data() == nullptr) continue;
            match.labels[label] = label_value(map_, label, std::string(found[group]));
        }
        return true;
    }
    return false;
}

std::vector<SymbolMatch> SymbolMatcher::match(const std::string& symbol, const std::string& demangled) const {
    std::vector<SymbolMatch> result;
    const bool search = may_match(demangled);
    SymbolMatch match;
    for (const Rule& rule : rules_)
        if (match_rule(rule, symbol, demangled, search, match)) result.push_back(std::move(match));
    return result;
}

}  // namespace hostrange
