// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/candidates.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "loader/probes/edit_distance.h"

namespace hostrange {

namespace {

constexpr std::size_t kShortestIdentifier = 4;
constexpr std::size_t kMostCandidates = 3;
constexpr std::size_t kMostNames = 2'000'000;  // looked at

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

// The identifiers of a mangled name. What stands among them by chance does no harm: it is near nothing.
void add_mangled_identifiers(std::string_view name, std::unordered_set<std::string_view>& all) {
    if (!name.starts_with("_Z")) {
        all.insert(name);
        return;
    }
    for (std::size_t i = 2; i < name.size();) {
        std::size_t length = 0;
        const auto [end, error] = std::from_chars(name.data() + i, name.data() + name.size(), length);
        const std::size_t begin = end - name.data();
        if (error != std::errc() || length == 0 || length > name.size() - begin) {
            ++i;
            continue;
        }
        if (length >= kShortestIdentifier) all.insert(name.substr(begin, length));
        i = begin + length;
    }
}

// Puts in the place of words that no function has those that they may be misspellings of: up to a third of the letters
// wrong.
void correct_spelling(std::vector<std::string>& words, const ElfFile& file) {
    std::unordered_set<std::string_view> known;
    std::size_t looked_at = 0;
    for (const FunctionSymbol& function : file.functions()) {
        if (++looked_at > kMostNames) break;
        add_mangled_identifiers(function.name, known);
    }
    for (std::string& word : words) {
        if (known.contains(word)) continue;
        std::size_t least = word.size() / 3 + 1;
        std::string_view nearest;
        for (const std::string_view other : known) {
            if (other.find(word) != other.npos) {  // it is part of one
                nearest = {};
                break;
            }
            if (std::max(other.size(), word.size()) - std::min(other.size(), word.size()) >= least) continue;
            const std::size_t edits = edit_distance(word, other);
            // The set has no order: of equally near ones the first by name, so that each run says the same.
            if (edits < least || (edits == least && !nearest.empty() && other < nearest))
                std::tie(least, nearest) = std::pair(edits, other);
        }
        if (!nearest.empty()) word = nearest;
    }
}

// A pattern of a range, as the set of its identifiers (by number).
struct Pattern {
    std::size_t range;
    std::set<std::size_t> words;
};

std::vector<Pattern> patterns_of(const std::vector<const RangeDefinition*>& ranges, std::vector<std::string>& words) {
    std::map<std::string, std::size_t> numbers;
    std::vector<Pattern> patterns;
    const auto add = [&](std::size_t range, const std::string& text) {
        Pattern pattern{range, {}};
        for (const std::string& word : identifiers(text)) {
            const auto [entry, is_new] = numbers.try_emplace(word, words.size());
            if (is_new) words.push_back(word);
            pattern.words.insert(entry->second);
        }
        patterns.push_back(std::move(pattern));
    };
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        for (const FunctionPattern& pattern : ranges[i]->functions) add(i, pattern.text);
        for (const std::string& symbol : ranges[i]->symbols) add(i, symbol);
        for (const std::vector<Point>* points : {&ranges[i]->begin, &ranges[i]->end})
            for (const Point& point : *points) add(i, point.function.text);
    }
    return patterns;
}

// A function that has some of the words. Its name is demangled again when it is shown.
struct Named {
    const std::string* symbol;
    std::vector<int> words;
};

}  // namespace

std::vector<std::vector<std::string>> nearest_functions(const std::vector<const RangeDefinition*>& ranges,
                                                        const ElfFile& file) {
    std::vector<std::vector<std::string>> result(ranges.size());
    std::vector<std::string> words;
    const std::vector<Pattern> patterns = patterns_of(ranges, words);
    correct_spelling(words, file);
    RE2::Options options;
    options.set_literal(true);
    options.set_log_errors(false);
    RE2::Set finder(options, RE2::UNANCHORED);
    for (const std::string& word : words) finder.Add(word, nullptr);
    if (words.empty() || !finder.Compile()) return result;

    // How many functions have a word: a rare one says more.
    std::vector<double> uses(words.size());
    std::vector<Named> named;
    std::vector<int> found;
    for (const FunctionSymbol& function : file.functions()) {
        if (named.size() >= kMostNames) break;
        // A mangled name has each identifier in plain text, once at least; demangling all would double the time.
        if (!finder.Match(function.name, &found)) continue;
        for (const int word : found) uses[word] += 1;
        std::sort(found.begin(), found.end());
        named.push_back({&function.name, found});
    }
    std::vector<std::vector<std::pair<double, const std::string*>>> best(ranges.size());
    for (const Named& one : named) {
        std::vector<double> scores(ranges.size());
        for (const Pattern& pattern : patterns) {
            double score = 0;
            for (const int word : one.words)
                if (pattern.words.contains(word)) score += 1 / uses[word];
            scores[pattern.range] = std::max(scores[pattern.range], score);
        }
        for (std::size_t range = 0; range < ranges.size(); ++range) {
            if (scores[range] == 0) continue;
            auto& list = best[range];
            list.emplace_back(-scores[range], one.symbol);
            if (list.size() < 4 * kMostCandidates) continue;
            std::stable_sort(list.begin(), list.end(),
                             [](const auto& left, const auto& right) { return left.first < right.first; });
            list.resize(2 * kMostCandidates);
        }
    }
    for (std::size_t range = 0; range < ranges.size(); ++range) {
        std::stable_sort(best[range].begin(), best[range].end(), [](const auto& left, const auto& right) {
            return left.first != right.first ? left.first < right.first : left.second->size() < right.second->size();
        });
        for (const auto& [score, symbol] : best[range]) {
            const std::string name = demangle(*symbol);
            std::vector<std::string>& names = result[range];
            if (names.size() < kMostCandidates && std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
        }
    }
    return result;
}

}  // namespace hostrange
