// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/probe_map.h"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fnmatch.h>
#include <re2/re2.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

#include "loader/failure.h"
#include "loader/probes/edit_distance.h"

namespace hostrange {
namespace {

using Names = std::vector<std::string>;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostRanges = 65535;
constexpr std::int64_t kExpressionMemoryBytes = 16 << 20;  // a map may come from anyone
const Names kLabelNames = {"operator", "backend", "implementation"};
const Names kRangeKeys = {"name",  "target",        "functions",        "symbols",    "places",
                          "begin", "end",           "inside",           "not_inside", "labels",
                          "cold",  "return_probes", "follow_tail_calls"};
const std::string kManual = "docs/probe-map.md describes the format";

bool contains(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// " (did you mean 'name'?)" if one of the names is close, else nothing.
std::string suggestion(const Names& names, std::string_view wrong) {
    constexpr std::size_t kLongestName = 64, kLettersPerMistake = 3;
    if (wrong.size() > kLongestName) return "";
    const auto mistakes = [&](const std::string& name) { return edit_distance(name, wrong); };
    const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& one, const auto& other) {
        return mistakes(one) < mistakes(other);
    });
    if (nearest == names.end() || mistakes(*nearest) > wrong.size() / kLettersPerMistake + 1) return "";
    return fmt::format(" (did you mean '{}'?)", *nearest);
}

// Reads one probe map; the first error ends it.
class Reader {
public:
    explicit Reader(std::string path) { map_.path = std::move(path); }

    ProbeMap read(const toml::table& root) {
        if (root.empty()) fail(root.source(), "version", "missing: the probe map is empty");
        check_keys(root, "", {"version", "targets", "labels", "ranges"});
        read_version(root);
        read_targets(root);
        read_labels(root);
        read_ranges(root);
        return std::move(map_);
    }

private:
    [[noreturn]] void fail(const toml::source_region& place, const std::string& key, const std::string& what,
                           const std::string& hint = kManual) const {
        throw Failure(ExitCode::kProbeMap,
                      fmt::format("{}:{}:{}: key '{}': {}", map_.path, place.begin.line, place.begin.column, key, what),
                      hint);
    }

    void check_keys(const toml::table& table, const std::string& prefix, const Names& allowed) const {
        for (const auto& [key, value] : table) {
            if (contains(allowed, key.str())) continue;
            fail(key.source(), prefix + std::string(key.str()),
                 fmt::format("unknown key{}, allowed: {}", suggestion(allowed, key.str()), fmt::join(allowed, ", ")));
        }
    }

    const toml::node& required(const toml::table& table, const std::string& prefix, const std::string& name,
                               const std::string& hint) const {
        const toml::node* node = table.get(name);
        if (!node) fail(table.source(), prefix + name, "missing", hint);
        return *node;
    }

    [[noreturn]] void fail_type(const toml::node& node, const std::string& key, const std::string& allowed) const {
        fail(node.source(), key, fmt::format("wrong type ({}), allowed: {}", fmt::streamed(node.type()), allowed));
    }

    const toml::table& table(const toml::node& node, const std::string& key) const {
        const toml::table* result = node.as_table();
        if (!result) fail_type(node, key, "a table");
        return *result;
    }

    const toml::array& array(const toml::node& node, const std::string& key, const std::string& allowed) const {
        const toml::array* result = node.as_array();
        if (!result) fail_type(node, key, allowed);
        if (result->empty()) fail(node.source(), key, "empty array, allowed: " + allowed, "fill it or leave it out");
        return *result;
    }

    std::string text(const toml::node& node, const std::string& key) const {
        const auto value = node.value_exact<std::string>();
        if (!value) fail_type(node, key, "a string");
        if (value->empty()) fail(node.source(), key, "empty string, allowed: a string with something in it");
        return *value;
    }

    bool boolean(const toml::node& node, const std::string& key) const {
        const auto value = node.value_exact<bool>();
        if (!value) fail_type(node, key, "true, false");
        return *value;
    }

    Names texts(const toml::node& node, const std::string& key, const std::string& allowed = "array of strings") const {
        Names result;
        for (const toml::node& element : array(node, key, allowed)) {
            result.push_back(text(element, fmt::format("{}[{}]", key, result.size())));
        }
        return result;
    }

    std::map<std::string, std::string> text_values(const toml::table& table, const std::string& prefix) const {
        std::map<std::string, std::string> result;
        for (const auto& [key, value] : table) result.emplace(key.str(), text(value, prefix + std::string(key.str())));
        return result;
    }

    // `what` says in a message what the name should be one of.
    void check_name(const toml::node& node, const std::string& key, const std::string& name, const Names& allowed,
                    const std::string& what) const {
        if (contains(allowed, name)) return;
        const std::string guess = suggestion(allowed, name);
        fail(node.source(), key,
             fmt::format("'{}' is no {}{}, allowed: {}", name, what, guess, fmt::join(allowed, ", ")));
    }

    FunctionPattern pattern(const toml::node& node, const std::string& key) const {
        FunctionPattern result;
        result.text = text(node, key);
        RE2::Options options;
        options.set_log_errors(false);
        options.set_max_mem(kExpressionMemoryBytes);
        auto expression = std::make_shared<const RE2>(result.text, options);
        if (!expression->ok()) {
            fail(node.source(), key, fmt::format("bad regular expression '{}': {}", result.text, expression->error()),
                 "the syntax is RE2's, which has no look-ahead; write it in single quotes, where TOML has no escapes");
        }
        result.label_names.resize(expression->NumberOfCapturingGroups());
        for (const auto& [group, name] : expression->CapturingGroupNames()) {
            check_name(node, key, name, kLabelNames, "label");
            result.label_names[group - 1] = name;
        }
        result.expression = std::move(expression);
        return result;
    }

    // The fields of a place, of a table whose keys have been checked.
    FilePlace file_place(const toml::table& fields, const std::string& prefix) const {
        FilePlace result;
        const toml::node& offset = required(fields, prefix, "offset", "for instance offset = 0x4a10");
        const auto value = offset.value_exact<std::int64_t>();
        if (!value) fail_type(offset, prefix + "offset", "an integer");
        if (*value < 0) fail(offset.source(), prefix + "offset", "negative, allowed: an offset in the file");
        result.offset = static_cast<std::uint64_t>(*value);
        if (const toml::node* instruction = fields.get("instruction"))
            result.instruction = text(*instruction, prefix + "instruction");
        return result;
    }

    std::vector<FilePlace> places(const toml::node& node, const std::string& key) const {
        std::vector<FilePlace> result;
        for (const toml::node& element : array(node, key, "array of { offset = …, instruction = … }")) {
            const std::string place = fmt::format("{}[{}]", key, result.size());
            const toml::table& fields = table(element, place);
            check_keys(fields, place + ".", {"offset", "instruction"});
            result.push_back(file_place(fields, place + "."));
        }
        return result;
    }

    std::vector<Point> points(const toml::node& node, const std::string& key) const {
        std::vector<Point> result;
        for (const toml::node& element :
             array(node, key, "array of { entry = … }, { return = … } and { offset = …, instruction = … }")) {
            const std::string place = fmt::format("{}[{}]", key, result.size());
            const toml::table& fields = table(element, place);
            check_keys(fields, place + ".", {"entry", "return", "offset", "instruction"});
            const toml::node *entry = fields.get("entry"), *leave = fields.get("return"),
                             *offset = fields.get("offset");
            const int kinds = (entry ? 1 : 0) + (leave ? 1 : 0) + (offset ? 1 : 0);
            if (kinds != 1 || (fields.get("instruction") && !offset))
                fail(element.source(), place, "not one point, allowed: either entry, or return, or offset");
            if (entry) {
                result.push_back({Point::Kind::kEntry, pattern(*entry, place + ".entry")});
            } else if (leave) {
                result.push_back({Point::Kind::kReturn, pattern(*leave, place + ".return")});
            } else {
                result.push_back({Point::Kind::kPlace, {}, file_place(fields, place + ".")});
            }
        }
        return result;
    }

    void read_version(const toml::table& root) const {
        const toml::node& node = required(root, "", "version", "begin the file with: version = 1");
        if (node.value_exact<std::int64_t>() == kVersion) return;
        if (!node.is_integer())
            fail(node.source(), "version", fmt::format("not an integer, allowed: {}", kVersion),
                 "write it without quotes: version = 1");
        fail(node.source(), "version", fmt::format("unsupported version, allowed: {}", kVersion),
             "use a probe map written for this release");
    }

    void read_targets(const toml::table& root) {
        const std::string example = "for instance [targets.mine] with files = [\"libmine.so*\"]";
        const toml::node& node = required(root, "", "targets", example);
        for (const auto& [key, value] : table(node, "targets")) {
            const std::string name(key.str()), prefix = "targets." + name + ".";
            const toml::table& fields = table(value, "targets." + name);
            check_keys(fields, prefix, {"files"});
            const toml::node& files = required(fields, prefix, "files", example);
            map_.targets.push_back({name, texts(files, prefix + "files")});
            for (const std::string& pattern : map_.targets.back().file_patterns)
                if (pattern.find('/') != std::string::npos)
                    fail(files.source(), prefix + "files", fmt::format("'{}' has a folder in it", pattern),
                         "files are told by the last part of their path alone: libname.so*");
        }
        if (map_.targets.empty()) fail(node.source(), "targets", "no target in it", example);
    }

    void read_labels(const toml::table& root) {
        const toml::node* node = root.get("labels");
        if (!node) return;
        const toml::table& labels = table(*node, "labels");
        check_keys(labels, "labels.", kLabelNames);
        for (const auto& [key, value] : labels) {
            const std::string name(key.str()), prefix = "labels." + name + ".";
            const toml::table& fields = table(value, "labels." + name);
            check_keys(fields, prefix, {"values", "snake_case"});
            LabelDefinition& label = map_.labels[name];
            const toml::node *values = fields.get("values"), *snake_case = fields.get("snake_case");
            if (values) label.values = text_values(table(*values, prefix + "values"), prefix + "values.");
            if (snake_case) label.snake_case = boolean(*snake_case, prefix + "snake_case");
        }
    }

    void read_ranges(const toml::table& root) {
        const toml::node& node = required(root, "", "ranges", "write [[ranges]] for each range");
        const toml::array& ranges = array(node, "ranges", "[[ranges]] tables");
        if (ranges.size() > kMostRanges) {
            fail(node.source(), "ranges", fmt::format("{} ranges, allowed: at most {}", ranges.size(), kMostRanges),
                 "let one range have several functions");
        }
        for (const toml::node& element : ranges) read_range(element, fmt::format("ranges[{}]", map_.ranges.size()));
        read_conditions(ranges);
    }

    void read_range(const toml::node& node, const std::string& place) {
        const toml::table& fields = table(node, place);
        const std::string prefix = place + ".";
        check_keys(fields, prefix, kRangeKeys);
        RangeDefinition range;
        const toml::node& name = required(fields, prefix, "name", "each range has a name, such as \"operator.call\"");
        range.name = text(name, prefix + "name");
        if (std::any_of(range.name.begin(), range.name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
            fail(name.source(), prefix + "name", "it has control characters", "use letters, digits, dots and the like");
        if (!numbers_.emplace(range.name, map_.ranges.size()).second) {
            const std::size_t other = numbers_.at(range.name);
            fail(name.source(), prefix + "name", fmt::format("'{}' is the name of ranges[{}] too", range.name, other),
                 "name it differently, or put the functions of both into one");
        }
        read_range_targets(fields, prefix, range);
        read_functions(fields, prefix, range);
        if (const toml::node* labels = fields.get("labels")) {
            const toml::table& values = table(*labels, prefix + "labels");
            check_keys(values, prefix + "labels.", kLabelNames);
            range.labels = text_values(values, prefix + "labels.");
        }
        if (const toml::node* cold = fields.get("cold")) range.cold = boolean(*cold, prefix + "cold");
        if (const toml::node* follow = fields.get("follow_tail_calls"))
            range.follow_tail_calls = boolean(*follow, prefix + "follow_tail_calls");
        if (const toml::node* how = fields.get("return_probes")) {
            const std::string value = text(*how, prefix + "return_probes");
            check_name(*how, prefix + "return_probes", value, {"auto", "ret", "uretprobe"}, "way to see returns");
            if (value == "ret") range.return_probes = ReturnProbes::kRet;
            if (value == "uretprobe") range.return_probes = ReturnProbes::kUretprobe;
        }
        map_.ranges.push_back(std::move(range));
    }

    void read_range_targets(const toml::table& fields, const std::string& prefix, RangeDefinition& range) const {
        const std::string key = prefix + "target";
        const toml::node& node = required(fields, prefix, "target", "name a target, or several in an array");
        range.targets = node.is_string() ? Names{text(node, key)} : texts(node, key, "a string, array of strings");
        Names known;
        for (const TargetDefinition& target : map_.targets) known.push_back(target.name);
        for (const std::string& name : range.targets) check_name(node, key, name, known, "target");
    }

    void read_functions(const toml::table& fields, const std::string& prefix, RangeDefinition& range) const {
        const toml::node *functions = fields.get("functions"), *symbols = fields.get("symbols");
        const toml::node* places_by_hand = fields.get("places");
        const toml::node *begin = fields.get("begin"), *end = fields.get("end");
        if (begin && !end) fail(begin->source(), prefix + "end", "missing", "a range with 'begin' needs 'end' too");
        if (end && !begin) fail(end->source(), prefix + "begin", "missing", "a range with 'end' needs 'begin' too");
        if (begin && (functions || symbols || places_by_hand)) {
            fail(begin->source(), prefix + "begin",
                 "not together with functions, symbols or places, allowed: one or the other");
        }
        if (functions) {
            const std::string key = prefix + "functions";
            for (const toml::node& element : array(*functions, key, "array of regular expressions")) {
                range.functions.push_back(pattern(element, fmt::format("{}[{}]", key, range.functions.size())));
            }
        }
        if (symbols) range.symbols = texts(*symbols, prefix + "symbols");
        if (places_by_hand) range.places = places(*places_by_hand, prefix + "places");
        if (begin) range.begin = points(*begin, prefix + "begin");
        if (end) range.end = points(*end, prefix + "end");
        if (functions || symbols || places_by_hand || begin) return;
        fail(fields.source(), prefix + "functions", "missing, allowed: functions, symbols, places, begin with end");
    }

    // Conditions may name ranges that come later in the file, so they are read when all are known.
    void read_conditions(const toml::array& ranges) {
        for (std::size_t i = 0; i < map_.ranges.size(); ++i) {
            const toml::table& fields = *ranges.get(i)->as_table();
            read_condition(fields, i, "inside", map_.ranges[i].inside);
            read_condition(fields, i, "not_inside", map_.ranges[i].not_inside);
        }
        check_circles(ranges);
    }

    void read_condition(const toml::table& fields, std::size_t range, const std::string& condition, Names& result) {
        const toml::node* node = fields.get(condition);
        if (!node) return;
        const std::string key = fmt::format("ranges[{}].{}", range, condition);
        result = texts(*node, key);
        Names names;
        for (const RangeDefinition& one : map_.ranges) names.push_back(one.name);
        for (const std::string& name : result) {
            if (!numbers_.contains(name)) check_name(*node, key, name, names, "range");
        }
    }

    // Ranges that keep each other out would count or not depending on which is entered first.
    void check_circles(const toml::array& ranges) const {
        std::vector<std::vector<std::size_t>> named_by(map_.ranges.size());
        std::vector<std::size_t> left(map_.ranges.size()), settled;  // how many of those it names are not settled
        for (std::size_t i = 0; i < left.size(); ++i) {
            for (const std::string& name : map_.ranges[i].not_inside) {
                // Kept out of itself: only the outermost of its scopes counts.
                if (numbers_.at(name) == i) continue;
                named_by[numbers_.at(name)].push_back(i);
                ++left[i];
            }
            if (left[i] == 0) settled.push_back(i);
        }
        for (std::size_t done = 0; done < settled.size(); ++done) {
            for (const std::size_t i : named_by[settled[done]]) {
                if (--left[i] == 0) settled.push_back(i);
            }
        }
        const std::size_t stuck = std::find_if(left.begin(), left.end(), std::identity()) - left.begin();
        if (stuck == left.size()) return;
        fail(ranges.get(stuck)->as_table()->get("not_inside")->source(), fmt::format("ranges[{}].not_inside", stuck),
             fmt::format("a circle: following not_inside from '{}' never ends", map_.ranges[stuck].name),
             "two ranges may not be kept out of each other");
    }

    ProbeMap map_;
    std::map<std::string, std::size_t, std::less<>> numbers_;  // of the ranges, by name
};

// A small letter before a capital, and a capital or digit before a capital with a small letter after it, end a word.
std::string to_snake_case(std::string text) {
    static const RE2 after_small("([a-z])([A-Z])"), before_small("([A-Z0-9])([A-Z][a-z])"), nested("::");
    RE2::GlobalReplace(&text, after_small, "\\1_\\2");
    RE2::GlobalReplace(&text, before_small, "\\1_\\2");
    RE2::GlobalReplace(&text, nested, "_");
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// May this character stand beside the dot of a dotted key? Blanks may stand between.
bool is_of_key(char c) {
    constexpr std::string_view kOthers = "_-\"'";
    const auto byte = static_cast<unsigned char>(c);
    return std::isalnum(byte) || kOthers.find(c) != std::string_view::npos || byte > 127;
}

// Each dot of a key (a.b.c = 1) is a table in a table, and toml++ destroys those by recursion: some 35,000 end the
// stack. Its own limit is for values in values only, 256. A key ends with its line. What a few dots in each of 256
// lines can make is harmless; further dots are limited over the whole text. Dots in strings are counted too where they
// look alike.
void check_depth(std::string_view text, const std::string& path) {
    constexpr std::size_t kDotsPerLine = 16, kMostFurtherDots = 1000;
    constexpr std::string_view kBlanks = " \t";
    std::size_t further_dots = 0;
    for (std::size_t line_number = 1; !text.empty(); ++line_number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        std::size_t dots = 0;
        for (std::size_t at = line.find('.'); at != std::string_view::npos; at = line.find('.', at + 1)) {
            if (at == 0) continue;
            const std::size_t before = line.find_last_not_of(kBlanks, at - 1);
            const std::size_t after = line.find_first_not_of(kBlanks, at + 1);
            if (before == std::string_view::npos || after == std::string_view::npos) continue;
            if (is_of_key(line[before]) && is_of_key(line[after])) ++dots;
        }
        further_dots += dots - std::min(dots, kDotsPerLine);
        if (further_dots <= kMostFurtherDots) continue;
        throw Failure(ExitCode::kProbeMap,
                      fmt::format("{}:{}:1: too many dots between names, up to this line", path, line_number),
                      "break lines that hold more than 16 of them; " + kManual);
    }
}

}  // namespace

const TargetDefinition* ProbeMap::find_target(std::string_view name) const {
    const auto found = std::find_if(targets.begin(), targets.end(), [&](const auto& one) { return one.name == name; });
    return found == targets.end() ? nullptr : &*found;
}

ProbeMap parse_probe_map(std::string_view text, const std::string& path) {
    check_depth(text, path);
    toml::table root;
    try {
        root = toml::parse(text, std::string_view(path));
    } catch (const toml::parse_error& error) {
        const toml::source_position& place = error.source().begin;
        throw Failure(ExitCode::kProbeMap,
                      fmt::format("{}:{}:{}: {}", path, place.line, place.column, error.description()),
                      error.description().find("escape") == std::string_view::npos
                          ? "the file must be TOML 1.0; " + kManual
                          : "put regular expressions in single quotes: in double ones a backslash is TOML's own");
    }
    return Reader(path).read(root);
}

ProbeMap load_probe_map(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    int error = file ? 0 : errno;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) error = EISDIR;  // it can be opened, but not read
    if (error != 0) {
        throw Failure(ExitCode::kProbeMap,
                      fmt::format("{}: the probe map cannot be read: {}", path, std::strerror(error)),
                      "name a readable file with --probe-map, or leave the option out for the default map");
    }
    constexpr std::size_t kMaxBytes = 16u << 20;
    std::string text(kMaxBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxBytes)
        throw Failure(ExitCode::kProbeMap, fmt::format("{}: it is larger than {} MiB", path, kMaxBytes >> 20),
                      "a probe map is a small text file; " + kManual);
    return parse_probe_map(text, path);
}

std::string label_value(const ProbeMap& map, const std::string& label, const std::string& text) {
    const auto definition = map.labels.find(label);
    if (definition == map.labels.end()) return text;
    const auto value = definition->second.values.find(text);
    if (value != definition->second.values.end()) return value->second;
    return definition->second.snake_case ? to_snake_case(text) : text;
}

std::vector<const TargetDefinition*> targets_of_file(const ProbeMap& map, std::string_view base_name) {
    const std::string name(base_name);
    std::vector<const TargetDefinition*> result;
    for (const TargetDefinition& target : map.targets) {
        const auto matches = [&](const std::string& glob) { return fnmatch(glob.c_str(), name.c_str(), 0) == 0; };
        const std::vector<std::string>& globs = target.file_patterns;
        if (std::any_of(globs.begin(), globs.end(), matches)) result.push_back(&target);
    }
    return result;
}

}  // namespace hostrange
