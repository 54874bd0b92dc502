// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/candidates.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

namespace hostrange {

namespace {

constexpr std::size_t kShortestIdentifier = 4;
constexpr std::size_t kMostCandidates = 3;

// The identifiers of a regular expression or a name. In an expression \w, \d and the like are none.
std::set<std::string> identifiers(std::string_view text) {
    std::set<std::string> result;
    std::string word;
    const auto end_word = [&] {
        if (word.size() >= kShortestIdentifier) result.insert(word);
        word.clear();
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\') {
            end_word();
            ++i;
        } else if (text.substr(i).starts_with("(?P<")) {
            end_word();
            i = std::min(text.find('>', i), text.size());
        } else if (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_') {
            word += text[i];
        } else {
            end_word();
        }
    }
    end_word();
    for (const char* common : {"clone", "const", "unsigned", "long", "void", "bool"}) result.erase(common);
    return result;
}

}  // namespace

std::vector<std::string> nearest_functions(const RangeDefinition& range, const ElfFile& file) {
    std::vector<std::set<std::string>> patterns;
    for (const FunctionPattern& pattern : range.functions) patterns.push_back(identifiers(pattern.text));
    for (const std::string& symbol : range.symbols) patterns.push_back(identifiers(symbol));
    for (const std::vector<Point>* points : {&range.begin, &range.end})
        for (const Point& point : *points) patterns.push_back(identifiers(point.function.text));

    // How many functions have a word: a rare one says more.
    std::map<std::string, double> uses;
    for (const std::set<std::string>& words : patterns)
        for (const std::string& word : words) uses[word] = 0;
    std::vector<std::string> names;
    for (const FunctionSymbol& function : file.functions()) {
        if (!names.empty() && names.back() == function.name) continue;
        names.push_back(demangle(function.name));
        for (auto& [word, count] : uses) count += names.back().find(word) != std::string::npos ? 1 : 0;
    }
    std::map<std::string, double> scores;
    for (const std::string& name : names) {
        double best = 0;
        for (const std::set<std::string>& words : patterns) {
            double score = 0;
            for (const std::string& word : words)
                if (name.find(word) != std::string::npos) score += 1 / uses.at(word);
            best = std::max(best, score);
        }
        if (best > 0) scores[name] = best;
    }
    std::vector<std::pair<std::string, double>> ranked(scores.begin(), scores.end());
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& one, const auto& other) {
        return one.second != other.second ? one.second > other.second : one.first.size() < other.first.size();
    });
    std::vector<std::string> result;
    for (const auto& [name, score] : ranked) {
        if (result.size() == kMostCandidates) break;
        result.push_back(name);
    }
    return result;
}

}  // namespace hostrange
