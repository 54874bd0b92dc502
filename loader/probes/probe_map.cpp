// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/probe_map.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <re2/re2.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "loader/failure.h"

namespace hostrange {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostRanges = 65535;
constexpr std::int64_t kExpressionMemoryBytes = 16 << 20;
const std::vector<std::string> kLabelNames = {"operator", "backend", "implementation"};

std::string position(const toml::source_region& source) {
    return fmt::format("{}:{}", source.begin.line, source.begin.column);
}

std::size_t distance(std::string_view one, std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < other.size(); ++j) {
            const std::size_t replaced = diagonal + (one[i] == other[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

// Reads one probe map; knows the path for its messages.
class Reader {
public:
    explicit Reader(const std::string& path) : path_(path) {}

    ProbeMap read(const toml::table& root) {
        ProbeMap map;
        map.path = path_;
        check_keys(root, "", {"version", "targets", "labels", "ranges"});
        read_version(root);
        read_targets(root, map);
        read_labels(root, map);
        read_ranges(root, map);
        return map;
    }

private:
    [[noreturn]] void fail(const toml::node& node, const std::string& key, const std::string& what,
                           const std::string& hint) const {
        throw Failure(ExitCode::kProbeMap, fmt::format("{}:{}: key '{}': {}", path_, position(node.source()), key, what),
                      hint);
    }

    void check_keys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& allowed) const {
        for (const auto& [key, value] : table) {
            const std::string name(key.str());
            if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
            const auto nearest = std::min_element(allowed.begin(), allowed.end(), [&](const auto& a, const auto& b) {
                return distance(a, name) < distance(b, name);
            });
            constexpr std::size_t kClose = 3;
            const std::string guess = nearest != allowed.end() && distance(*nearest, name) <= kClose
                                          ? fmt::format("; did you mean '{}'?", *nearest)
                                          : "";
            throw Failure(ExitCode::kProbeMap,
                          fmt::format("{}:{}: key '{}{}' is not known{}", path_, position(key.source()), prefix, name,
                                      guess),
                          fmt::format("allowed here: {}", fmt::join(allowed, ", ")));
        }
    }

    std::string text(const toml::node& node, const std::string& key) const {
        const auto value = node.value_exact<std::string>();
        if (!value || value->empty()) fail(node, key, "must be a string that is not empty", "write it in quotes");
        return *value;
    }

    bool boolean(const toml::node& node, const std::string& key) const {
        const auto value = node.value_exact<bool>();
        if (!value) fail(node, key, "must be true or false", "write it without quotes");
        return *value;
    }

    // A string, or an array of strings.
    std::vector<std::string> texts(const toml::node& node, const std::string& key, bool single_allowed = false) const {
        if (single_allowed && node.is_string()) return {text(node, key)};
        const toml::array* array = node.as_array();
        if (!array || array->empty()) {
            fail(node, key, fmt::format("must be {}an array of strings that is not empty",
                                        single_allowed ? "a string, or " : ""), "for instance [\"one\", \"two\"]");
        }
        std::vector<std::string> result;
        for (std::size_t i = 0; i < array->size(); ++i) result.push_back(text(*array->get(i), fmt::format("{}[{}]", key, i)));
        return result;
    }

    const toml::table& table(const toml::node& node, const std::string& key) const {
        const toml::table* result = node.as_table();
        if (!result) fail(node, key, "must be a table", "docs/probe-map.md describes the format");
        return *result;
    }

    FunctionPattern pattern(const toml::node& node, const std::string& key) const {
        FunctionPattern result;
        result.text = text(node, key);
        RE2::Options options;
        options.set_log_errors(false);
        options.set_max_mem(kExpressionMemoryBytes);
        const auto expression = std::make_shared<const RE2>(result.text, options);
        if (!expression->ok()) {
            fail(node, key, fmt::format("the regular expression '{}' is wrong: {}", result.text, expression->error()),
                 "the syntax is RE2's; in TOML write it in single quotes");
        }
        result.label_names.resize(expression->NumberOfCapturingGroups());
        for (const auto& [group, name] : expression->CapturingGroupNames()) {
            check_label_name(node, key, name);
            result.label_names[group - 1] = name;
        }
        result.expression = expression;
        return result;
    }

    void check_label_name(const toml::node& node, const std::string& key, const std::string& name) const {
        if (std::find(kLabelNames.begin(), kLabelNames.end(), name) != kLabelNames.end()) return;
        fail(node, key, fmt::format("'{}' is no label", name), fmt::format("labels are {}", fmt::join(kLabelNames, ", ")));
    }

    Point point(const toml::node& node, const std::string& key) const {
        const toml::table& fields = table(node, key);
        check_keys(fields, key + ".", {"entry", "return"});
        if (fields.size() != 1) {
            fail(node, key, "must have one of 'entry' and 'return'", "for instance { entry = '^f\\(' }");
        }
        const bool entry = fields.contains("entry");
        const char* name = entry ? "entry" : "return";
        return {entry ? Point::Kind::kEntry : Point::Kind::kReturn, pattern(*fields.get(name), key + "." + name)};
    }

    std::vector<Point> points(const toml::node& node, const std::string& key) const {
        const toml::array* array = node.as_array();
        if (!array || array->empty()) {
            fail(node, key, "must be an array of points that is not empty", "for instance [{ entry = '^f\\(' }]");
        }
        std::vector<Point> result;
        for (std::size_t i = 0; i < array->size(); ++i) result.push_back(point(*array->get(i), fmt::format("{}[{}]", key, i)));
        return result;
    }

    void read_version(const toml::table& root) const {
        const toml::node* version = root.get("version");
        if (!version) {
            throw Failure(ExitCode::kProbeMap, fmt::format("{}:1:1: key 'version' is missing", path_),
                          "begin the file with: version = 1");
        }
        const auto value = version->value_exact<std::int64_t>();
        if (!value || *value != kVersion) {
            fail(*version, "version", "this version of the format is not known", fmt::format("allowed: {}", kVersion));
        }
    }

    void read_targets(const toml::table& root, ProbeMap& map) const {
        const toml::node* node = root.get("targets");
        if (!node || !node->as_table() || node->as_table()->empty()) {
            throw Failure(ExitCode::kProbeMap, fmt::format("{}:{}: key 'targets': there must be a table for each target",
                                                           path_, node ? position(node->source()) : "1:1"),
                          "for instance [targets.mine] with files = [\"libmine.so*\"]");
        }
        for (const auto& [key, value] : *node->as_table()) {
            const std::string prefix = "targets." + std::string(key.str());
            const toml::table& fields = table(value, prefix);
            check_keys(fields, prefix + ".", {"files"});
            const toml::node* files = fields.get("files");
            if (!files) fail(value, prefix, "'files' is missing", "for instance files = [\"libmine.so*\"]");
            map.targets.push_back({std::string(key.str()), texts(*files, prefix + ".files")});
        }
    }

    void read_labels(const toml::table& root, ProbeMap& map) const {
        const toml::node* node = root.get("labels");
        if (!node) return;
        for (const auto& [key, value] : table(*node, "labels")) {
            const std::string name(key.str()), prefix = "labels." + name;
            check_label_name(value, prefix, name);
            const toml::table& fields = table(value, prefix);
            check_keys(fields, prefix + ".", {"values", "snake_case"});
            LabelDefinition label;
            if (const toml::node* values = fields.get("values")) {
                for (const auto& [from, to] : table(*values, prefix + ".values")) {
                    label.values[std::string(from.str())] = text(to, prefix + ".values." + std::string(from.str()));
                }
            }
            if (const toml::node* snake_case = fields.get("snake_case")) {
                label.snake_case = boolean(*snake_case, prefix + ".snake_case");
            }
            map.labels[name] = std::move(label);
        }
    }

    void read_ranges(const toml::table& root, ProbeMap& map) const {
        const toml::node* node = root.get("ranges");
        const toml::array* array = node ? node->as_array() : nullptr;
        if (!array || array->empty()) {
            throw Failure(ExitCode::kProbeMap,
                          fmt::format("{}:{}: key 'ranges': there must be at least one [[ranges]] table", path_,
                                      node ? position(node->source()) : "1:1"),
                          "docs/probe-map.md has examples");
        }
        if (array->size() > kMostRanges) {
            fail(*node, "ranges", fmt::format("{} ranges are too many", array->size()),
                 fmt::format("at most {}", kMostRanges));
        }
        for (std::size_t i = 0; i < array->size(); ++i) {
            const toml::node& value = *array->get(i);
            const std::string prefix = fmt::format("ranges[{}]", i);
            RangeDefinition range = read_range(table(value, prefix), value, prefix, map);
            for (const RangeDefinition& other : map.ranges) {
                if (other.name == range.name) {
                    fail(value, prefix + ".name", fmt::format("there are two ranges '{}'", range.name),
                         "put their functions into one");
                }
            }
            map.ranges.push_back(std::move(range));
        }
        for (std::size_t i = 0; i < array->size(); ++i) check_not_inside(*array->get(i), i, map);
    }

    RangeDefinition read_range(const toml::table& fields, const toml::node& node, const std::string& prefix,
                               const ProbeMap& map) const {
        check_keys(fields, prefix + ".", {"name", "target", "functions", "symbols", "begin", "end", "not_inside", "labels",
                                          "cold", "return_probes"});
        const auto required = [&](const char* key) -> const toml::node& {
            const toml::node* found = fields.get(key);
            if (!found) fail(node, prefix, fmt::format("'{}' is missing", key), "docs/probe-map.md has examples");
            return *found;
        };
        RangeDefinition range;
        range.name = text(required("name"), prefix + ".name");
        const toml::node& target = required("target");
        range.targets = texts(target, prefix + ".target", true);
        for (const std::string& name : range.targets) {
            if (map.find_target(name)) continue;
            std::vector<std::string> known;
            for (const TargetDefinition& one : map.targets) known.push_back(one.name);
            fail(target, prefix + ".target", fmt::format("there is no target '{}'", name),
                 fmt::format("targets of this map: {}", fmt::join(known, ", ")));
        }
        if (const toml::node* functions = fields.get("functions")) {
            const std::string key = prefix + ".functions";
            texts(*functions, key);
            const toml::array& array = *functions->as_array();
            for (std::size_t i = 0; i < array.size(); ++i) {
                range.functions.push_back(pattern(*array.get(i), fmt::format("{}[{}]", key, i)));
            }
        }
        if (const toml::node* symbols = fields.get("symbols")) range.symbols = texts(*symbols, prefix + ".symbols");
        if (const toml::node* begin = fields.get("begin")) range.begin = points(*begin, prefix + ".begin");
        if (const toml::node* end = fields.get("end")) range.end = points(*end, prefix + ".end");
        const bool has_functions = !range.functions.empty() || !range.symbols.empty();
        if (range.begin.empty() != range.end.empty()) {
            fail(node, prefix, "'begin' and 'end' go together", "name the points where the range begins and ends");
        }
        if (has_functions == range.is_point_to_point()) {
            fail(node, prefix, "must have either 'functions' (or 'symbols'), or 'begin' and 'end'",
                 "docs/probe-map.md has examples");
        }
        if (const toml::node* not_inside = fields.get("not_inside")) {
            range.not_inside = texts(*not_inside, prefix + ".not_inside");
        }
        if (const toml::node* labels = fields.get("labels")) {
            for (const auto& [key, value] : table(*labels, prefix + ".labels")) {
                const std::string name(key.str());
                check_label_name(value, prefix + ".labels", name);
                range.labels[name] = text(value, prefix + ".labels." + name);
            }
        }
        if (const toml::node* cold = fields.get("cold")) range.cold = boolean(*cold, prefix + ".cold");
        if (const toml::node* how = fields.get("return_probes")) {
            const std::string value = text(*how, prefix + ".return_probes");
            if (value == "auto") {
                range.return_probes = ReturnProbes::kAuto;
            } else if (value == "ret") {
                range.return_probes = ReturnProbes::kRet;
            } else if (value == "uretprobe") {
                range.return_probes = ReturnProbes::kUretprobe;
            } else {
                fail(*how, prefix + ".return_probes", fmt::format("'{}' is not known", value),
                     "allowed: auto, ret, uretprobe");
            }
        }
        return range;
    }

    void check_not_inside(const toml::node& node, std::size_t index, const ProbeMap& map) const {
        const RangeDefinition& range = map.ranges[index];
        const std::string key = fmt::format("ranges[{}].not_inside", index);
        for (const std::string& name : range.not_inside) {
            const toml::node& place = *node.as_table()->get("not_inside");
            if (name == range.name) fail(place, key, "a range cannot be kept out of itself", "name other ranges");
            const bool known = std::any_of(map.ranges.begin(), map.ranges.end(),
                                           [&](const RangeDefinition& other) { return other.name == name; });
            if (known) continue;
            std::vector<std::string> names;
            for (const RangeDefinition& other : map.ranges) names.push_back(other.name);
            fail(place, key, fmt::format("there is no range '{}'", name),
                 fmt::format("ranges of this map: {}", fmt::join(names, ", ")));
        }
    }

    const std::string& path_;
};

// RmsNorm -> rms_norm, GEMM -> gemm, Conv2dBias -> conv2d_bias: a capital begins a word if a small letter or a digit
// stands before it, or if it ends a run of capitals before a small letter.
std::string to_snake_case(const std::string& text) {
    std::string result;
    const auto is_upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
    const auto is_lower = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool begins_word =
            i > 0 && is_upper(text[i]) &&
            (is_lower(text[i - 1]) || is_digit(text[i - 1]) ||
             (is_upper(text[i - 1]) && i + 1 < text.size() && is_lower(text[i + 1])));
        if (begins_word) result += '_';
        result += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
    }
    return result;
}

}  // namespace

const TargetDefinition* ProbeMap::find_target(std::string_view name) const {
    for (const TargetDefinition& target : targets) {
        if (target.name == name) return &target;
    }
    return nullptr;
}

ProbeMap parse_probe_map(std::string_view text, const std::string& path) {
    toml::table root;
    try {
        root = toml::parse(text, path);
    } catch (const toml::parse_error& error) {
        throw Failure(ExitCode::kProbeMap,
                      fmt::format("{}:{}: {}", path, position(error.source()), error.description()),
                      "the file must be TOML 1.0");
    }
    return Reader(path).read(root);
}

ProbeMap load_probe_map(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) {
        throw Failure(ExitCode::kProbeMap, fmt::format("{}: {}", path, errno ? std::strerror(errno) : "cannot be read"),
                      "name a readable file with --probe-map, or leave the option out for the default map");
    }
    return parse_probe_map(text.str(), path);
}

std::string label_value(const ProbeMap& map, const std::string& label, const std::string& text) {
    const auto definition = map.labels.find(label);
    if (definition == map.labels.end()) return text;
    const auto value = definition->second.values.find(text);
    if (value != definition->second.values.end()) return value->second;
    return definition->second.snake_case ? to_snake_case(text) : text;
}

std::vector<const TargetDefinition*> targets_of_file(const ProbeMap& map, std::string_view base_name) {
    std::vector<const TargetDefinition*> result;
    const std::string name(base_name);
    for (const TargetDefinition& target : map.targets) {
        const bool matches = std::any_of(
            target.file_patterns.begin(), target.file_patterns.end(),
            [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
        if (matches) result.push_back(&target);
    }
    return result;
}

}  // namespace hostrange
