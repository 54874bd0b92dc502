// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loader/probes/probe_map.h"

namespace hostrange {

// What the compiler has made of a function, read from the suffixes of its symbol: f.constprop.0.cold and the like.
struct CloneSuffix {
    bool cold = false;           // code of the function `base` moved out of line; entered by a jump or by unwinding
    bool numbered_cold = false;  // f.cold.1: that, or (clang's outliner) a function of its own; who jumps there tells
    bool part = false;           // f.part.0: the remainder of a function whose beginning is inlined into its callers
    std::string_view root;       // the symbol without any suffix
    std::string_view base;       // the symbol without .cold; the symbol otherwise
};
CloneSuffix clone_suffix(std::string_view symbol);

// What a function is to a range.
enum class Role {
    kScope,        // its calls are the range's scopes
    kBeginEntry,   // its entry begins a point-to-point range
    kBeginReturn,  // its return does
    kEndEntry,     // its entry ends one
    kEndReturn,    // its return does
};

struct SymbolMatch {
    std::uint32_t range;
    Role role;
    std::map<std::string, std::string> labels;
};

// Which ranges a symbol carries.
class SymbolMatcher {
public:
    // Of the ranges whose targets match this base name of a file.
    SymbolMatcher(const ProbeMap& map, std::string_view base_name);
    // Of all ranges, for a symbol of which it is not known which file defines it.
    explicit SymbolMatcher(const ProbeMap& map);
    ~SymbolMatcher();

    // In the order of the map; each range and role once, with the labels of the first of its patterns that matches.
    std::vector<SymbolMatch> match(const std::string& symbol, const std::string& demangled) const;

private:
    // What makes a function one of a range in a role.
    struct Rule {
        std::uint32_t range;
        Role role;
        std::vector<const FunctionPattern*> patterns;
        const std::vector<std::string>* symbols;  // globs; may be nullptr
    };
    struct Prefilter;
    void add_range(std::uint32_t range);
    void add_points(std::uint32_t range, const std::vector<Point>& points, Role entry, Role leave);
    void build_prefilter();
    bool may_match(const std::string& demangled) const;
    bool match_rule(const Rule& rule, const std::string& symbol, const std::string& demangled, bool search,
                    SymbolMatch& match) const;

    const ProbeMap& map_;
    std::vector<Rule> rules_;
    std::unique_ptr<Prefilter> prefilter_;
};

// The ranges whose targets match this base name of a file, point-to-point ones among them.
std::vector<std::uint32_t> ranges_of_file(const ProbeMap& map, std::string_view base_name);

}  // namespace hostrange
