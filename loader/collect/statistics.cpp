// SPDX-License-Identifier: Apache-2.0
#include "loader/collect/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "loader/collect/tree_nodes.h"
#include "loader/collect/unwound_scopes.h"

namespace hostrange {
namespace {

constexpr std::uint32_t kNone = TreeNodes::kNone;
using Node = TreeNodes::Node;
using Labels = TreeNodes::Labels;

struct Site {
    std::uint32_t range;
    Labels labels;
    ProbeCost cost;
};

// A call of the tree at hand. The first stands for the tree: for what lies in no other call, and for the markers around
// those.
struct Call {
    std::uint64_t start_ns;
    Labels common{};  // the one value in it, or 0
    Labels conflicting{};
    bool has_cold_range = false;
    bool has_scopes = false;
    // What was in force when it began.
    MarkLog::Moment moment{};
    Phase phase = Phase::kWarm;

    void note_label(std::size_t i, std::uint32_t label) {
        if (label == 0 || label == common[i]) return;
        conflicting[i] |= common[i];
        common[i] = label;
    }
    std::uint32_t common_label(std::size_t i) const { return conflicting[i] ? 0 : common[i]; }
};

// A row as numbers.
struct RowNumbers {
    std::uint32_t process;
    Labels labels;
    std::uint32_t range;
    std::uint32_t phase;
    std::uint32_t test_case;
    bool outside_phases;
    bool operator==(const RowNumbers&) const = default;

    std::uint64_t hash() const {
        const std::uint64_t first = std::uint64_t{process} << 32 | labels[0];
        const std::uint64_t second = std::uint64_t{labels[1]} << 32 | labels[2];
        const std::uint64_t third =
            std::uint64_t{test_case} << 32 ^ std::uint64_t{phase} << 17 ^ range << 1 ^ outside_phases;
        std::uint64_t mixed = first ^ std::rotl(second, 20) ^ std::rotl(third, 44);
        mixed *= 0x9e3779b97f4a7c15u;
        return (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15u;
    }
};

struct Row {
    Row(const RowNumbers& row_numbers, SampleBudget* budget) : numbers(row_numbers), samples(budget) {}
    RowNumbers numbers;
    RowSamples samples;
};

// An unwound scope: where it stands. No samples: it was taken out, or its site is unknown.
struct Unwound {
    RowSamples* samples;
    ScopeTimes times;
};

struct Process {
    ProcessKey key;
    std::unordered_map<std::uint32_t, std::uint32_t> thread_numbers;  // by thread id
};

}  // namespace

struct Collector::Contents {
    std::vector<RangeTraits> ranges;
    bool corrects = false;
    SampleBudget budget;
    CollectionTotals totals;
    std::vector<Site> sites;

    std::vector<std::string> label_texts{""};
    std::unordered_map<std::string, std::uint32_t> label_numbers{{"", 0}};
    std::vector<Process> processes;
    std::map<ProcessKey, std::uint32_t> process_numbers;
    std::uint32_t last_process = kNone;

    std::deque<Row> rows;
    std::vector<Row*> row_table = std::vector<Row*>(64);  // open addressing; size: a power of two

    UnwoundScopes<Unwound> unwound_scopes;

    // The tree at hand.
    TreeNodes nodes;
    std::vector<Call> calls;
    EarlierPieces earlier_pieces;

    MarkLog marks;
    std::unordered_map<std::uint32_t, std::uint32_t> marker_ranges;  // range numbers, by number of the name
    std::vector<Labels> case_labels;
    // By run of a case and operator.
    std::set<std::pair<std::uint64_t, std::uint32_t>> seen_calls;

    std::uint32_t label_number(const std::string& text);
    std::uint32_t process_number(const ProcessKey& key);
    Row& row(const RowNumbers& numbers);

    bool is_excluded(std::uint32_t range, std::uint32_t parent);
    std::uint32_t range_of(const hostrange_scope& scope) const;
    std::uint32_t call_of(const Node& node);
    void resolve_nodes();
    void resolve_calls(const ProcessKey& process);
    void name_range(std::uint32_t number, const std::string& name);
    const Labels& labels_of_case(std::uint32_t test_case);
    void add_samples(std::uint32_t process, std::uint32_t thread);
    void add_sample(RowSamples& samples, const ScopeTimes& times);
    bool end_late(const hostrange_scope& scope, std::uint32_t process, std::uint32_t thread);
};

std::uint32_t Collector::Contents::label_number(const std::string& text) {
    const auto [entry, is_new] = label_numbers.try_emplace(text, label_texts.size());
    if (is_new) label_texts.push_back(text);
    return entry->second;
}

std::uint32_t Collector::Contents::process_number(const ProcessKey& key) {
    if (last_process != kNone && processes[last_process].key == key) return last_process;
    const auto [entry, is_new] = process_numbers.try_emplace(key, processes.size());
    if (is_new) processes.push_back({key, {}});
    return last_process = entry->second;
}

Row& Collector::Contents::row(const RowNumbers& numbers) {
    const auto free_place = [this](const RowNumbers& wanted) {
        std::size_t i = wanted.hash() & (row_table.size() - 1);
        while (row_table[i] && row_table[i]->numbers != wanted) i = (i + 1) & (row_table.size() - 1);
        return i;
    };
    std::size_t place = free_place(numbers);
    if (row_table[place]) return *row_table[place];
    rows.emplace_back(numbers, &budget);
    if (rows.size() * 2 > row_table.size()) {
        row_table.assign(row_table.size() * 2, nullptr);
        for (Row& old : rows) row_table[free_place(old.numbers)] = &old;
    } else {
        row_table[place] = &rows.back();
    }
    return rows.back();
}

// A scope that was abandoned (by longjmp, say) may have been left before this one began: where the answer hangs on such
// scopes, it is noted as uncertain.
bool Collector::Contents::is_excluded(std::uint32_t range, std::uint32_t parent) {
    const std::vector<std::uint32_t>&forbidden = ranges[range].not_inside, &wanted = ranges[range].inside;
    if (forbidden.empty() && wanted.empty()) return false;
    const auto has = [](const std::vector<std::uint32_t>& some, std::uint32_t one) {
        return std::find(some.begin(), some.end(), one) != some.end();
    };
    struct Answer {
        bool is_inside, is_forbidden = false;
        bool excludes() const { return is_forbidden || !is_inside; }
    } all{wanted.empty()}, certain{wanted.empty()};
    for (; parent != kNone && !certain.is_forbidden; parent = nodes[parent].parent) {
        const std::uint32_t around = nodes[parent].range;
        for (Answer* answer : {&all, &certain}) {
            const bool was_abandoned = HOSTRANGE_SCOPE_ENDING(nodes[parent].scope->ending) == HOSTRANGE_ENDED_ABANDONED;
            if (answer == &certain && was_abandoned) continue;
            answer->is_forbidden |= has(forbidden, around);
            answer->is_inside |= has(wanted, around);
        }
    }
    if (all.excludes() != certain.excludes()) ++totals.uncertain_conditions[range];
    return all.excludes();
}

// kNone if there is no such range.
std::uint32_t Collector::Contents::range_of(const hostrange_scope& scope) const {
    if (const std::uint32_t name = HOSTRANGE_SCOPE_NAME(scope.ending)) {
        const auto found = marker_ranges.find(name);
        return found == marker_ranges.end() ? kNone : found->second;
    }
    const bool is_known = scope.site < sites.size() && sites[scope.site].range < ranges.size();
    return is_known ? sites[scope.site].range : kNone;
}

std::uint32_t Collector::Contents::call_of(const Node& node) {
    if (node.parent == kNone) return 0;
    const Node& parent = nodes[node.parent];
    if (node.is_marker || !parent.is_marker || parent.call != 0) return parent.call;
    calls.push_back({.start_ns = node.scope->start_ns});
    return calls.size() - 1;
}

// Decides for each node whether it stays, what encloses it, which call it is part of, and what its labels are.
void Collector::Contents::resolve_nodes() {
    calls.clear();
    calls.push_back({.start_ns = nodes[0].scope->start_ns});
    for (Node& node : nodes) {
        const hostrange_scope& scope = *node.scope;
        node.range = kNone;
        node.is_marker = HOSTRANGE_SCOPE_NAME(scope.ending) != 0;
        // A parent was entered earlier, so its id is lower. Anything else is a defect, and must not make a circle.
        node.parent = scope.parent != 0 && scope.parent < scope.id ? nodes.find(scope.parent) : kNone;
        if (node.parent != kNone && nodes[node.parent].range == kNone) node.parent = nodes[node.parent].parent;
        if (scope.site < sites.size()) node.times.cost = sites[scope.site].cost;
        const std::uint32_t range = range_of(scope);
        if (range == kNone) {
            ++totals.unknown_site;
            continue;
        }
        if (is_excluded(range, node.parent)) {
            ++totals.outside_condition;
            continue;
        }
        node.range = range;
        node.labels = node.is_marker ? Labels{} : sites[scope.site].labels;
        node.depth = 0;
        node.call = call_of(node);
        Call& call = calls[node.call];
        call.has_cold_range |= ranges[range].cold;
        call.has_scopes |= !node.is_marker;
        for (std::size_t i = 0; i < node.labels.size(); ++i) {
            call.note_label(i, node.labels[i]);
            if (node.call != 0) calls[0].note_label(i, node.labels[i]);
        }
        if (node.parent == kNone) continue;
        Node& parent = nodes[node.parent];
        node.depth = parent.depth + 1;
        for (std::size_t i = 0; i < node.labels.size(); ++i) {
            if (node.labels[i] == 0) node.labels[i] = parent.labels[i];
        }
    }
}

// Decides for each call which case and phase it belongs to.
void Collector::Contents::resolve_calls(const ProcessKey& process) {
    bool all_cold = true;
    for (std::size_t i = 1; i <= calls.size(); ++i) {
        // The tree itself comes last: markers around calls are cold if these are.
        Call& call = calls[i % calls.size()];
        const bool is_around_calls = i == calls.size() && calls.size() > 1 && !call.has_scopes;
        call.moment = marks.at(process, call.start_ns);
        if (call.moment.phase != MarkLog::kNoPhase) {
            call.phase = static_cast<Phase>(call.moment.phase);
            continue;
        }
        bool is_cold = is_around_calls ? all_cold : call.has_cold_range;
        if (call.has_scopes && call.moment.test_case != MarkLog::kNoCase)
            is_cold |= seen_calls.emplace(call.moment.run, call.common_label(0)).second;
        call.phase = is_cold ? Phase::kCold : Phase::kWarm;
        all_cold = all_cold && is_cold;
    }
}

const Labels& Collector::Contents::labels_of_case(std::uint32_t test_case) {
    while (case_labels.size() <= test_case) {
        const MarkedCase& one = marks.cases()[case_labels.size()];
        case_labels.push_back({label_number(one.operator_name), label_number(one.backend), 0});
    }
    return case_labels[test_case];
}

void Collector::Contents::name_range(std::uint32_t number, const std::string& name) {
    const auto known =
        std::find_if(ranges.begin(), ranges.end(), [&](const RangeTraits& range) { return range.name == name; });
    marker_ranges[number] = known - ranges.begin();
    if (known == ranges.end()) ranges.push_back({.name = name, .not_inside = {}});
}

void Collector::Contents::add_samples(std::uint32_t process, std::uint32_t thread) {
    for (Node& node : nodes) {
        const hostrange_scope& scope = *node.scope;
        const std::uint32_t ending = HOSTRANGE_SCOPE_ENDING(scope.ending);
        const bool is_unwound = ending != HOSTRANGE_ENDED_BY_EXIT && ending != HOSTRANGE_ENDED_LATE;
        const auto note_unwound = [&](RowSamples* samples) {
            unwound_scopes.add({process, thread, scope.site, scope.start_ns}, {samples, node.times});
        };
        if (node.range == kNone) {
            if (is_unwound) note_unwound(nullptr);
            continue;
        }
        const Call& call = calls[node.call];
        RowNumbers numbers{.process = process,
                           .labels = node.labels,
                           .range = node.range,
                           .phase = static_cast<std::uint32_t>(call.phase),
                           .test_case = call.moment.test_case,
                           .outside_phases = call.moment.phase == MarkLog::kNoPhase};
        for (std::size_t i = 0; i < numbers.labels.size(); ++i) {
            if (numbers.labels[i] == 0) numbers.labels[i] = call.common_label(i);
            if (numbers.labels[i] == 0 && numbers.test_case != MarkLog::kNoCase)
                numbers.labels[i] = labels_of_case(numbers.test_case)[i];
        }
        RowSamples& samples = row(numbers).samples;
        samples.threads.insert(thread);
        node.labels = numbers.labels;
        const Node* parent = node.parent == kNone ? nullptr : &nodes[node.parent];
        if (!parent || parent->labels != node.labels || (parent->is_marker && !node.is_marker)) ++samples.calls;
        if (node.depth < samples.depth) {
            samples.depth = node.depth;
            samples.enclosing_range = parent ? parent->range : RowSamples::kNoRange;
        }
        if (!is_unwound) {
            add_sample(samples, node.times);
            continue;
        }
        ++samples.unwound;
        ++totals.unwound;
        note_unwound(&samples);
    }
}

void Collector::Contents::add_sample(RowSamples& samples, const ScopeTimes& times) {
    ++totals.scopes;
    samples.inclusive.add(times.raw_ns);
    samples.self.add(times.raw_self_ns());
    if (!corrects) return;
    samples.corrected_inclusive.add(times.corrected_ns());
    samples.corrected_self.add(times.corrected_self_ns());
}

// Makes good an unwound scope; false if it is not known to be one.
bool Collector::Contents::end_late(const hostrange_scope& scope, std::uint32_t process, std::uint32_t thread) {
    const std::optional<Unwound> unwound = unwound_scopes.take({process, thread, scope.site, scope.start_ns});
    if (!unwound) return false;
    if (!unwound->samples) return true;
    --unwound->samples->unwound;
    --totals.unwound;
    ScopeTimes times = unwound->times;
    times.raw_ns = clamped_ns(scope.duration_ns);
    add_sample(*unwound->samples, times);
    return true;
}

Collector::Collector(std::vector<RangeTraits> ranges, std::size_t sample_memory_bytes, bool corrects)
    : contents_(std::make_unique<Contents>()) {
    contents_->ranges = std::move(ranges);
    contents_->corrects = corrects;
    contents_->budget.limit_bytes = sample_memory_bytes;
    contents_->marks.on_range_name = [contents = contents_.get()](std::uint32_t number, const std::string& name) {
        contents->name_range(number, name);
    };
}

Collector::~Collector() = default;

void Collector::add_site(SiteTraits site) {
    contents_->sites.push_back({site.range,
                                {contents_->label_number(site.operator_name), contents_->label_number(site.backend),
                                 contents_->label_number(site.implementation)},
                                site.cost});
}

void Collector::add_tree(const CallTree& tree) {
    const std::uint32_t process = contents_->process_number(tree.process);
    auto& threads = contents_->processes[process].thread_numbers;
    const std::uint32_t thread = threads.try_emplace(tree.thread_id, threads.size()).first->second;
    if (tree.scopes.size() == 1 && HOSTRANGE_SCOPE_ENDING(tree.scopes[0].ending) == HOSTRANGE_ENDED_LATE &&
        contents_->end_late(tree.scopes[0], process, thread)) {
        return;
    }
    ++contents_->totals.trees;
    if (tree.unfinished) ++contents_->totals.unfinished_trees;
    if (tree.scopes.empty()) return;

    contents_->nodes.assign(tree.scopes);
    contents_->resolve_nodes();
    contents_->resolve_calls(tree.process);
    contents_->earlier_pieces.correct(contents_->nodes, {process, thread}, tree.is_rest, tree.goes_on);
    contents_->add_samples(process, thread);
}

void Collector::add_mark(std::span<const std::byte> record) {
    contents_->marks.add(record);
}

const MarkLog& Collector::marks() const {
    return contents_->marks;
}

const std::vector<RangeTraits>& Collector::ranges() const {
    return contents_->ranges;
}
bool Collector::corrects() const {
    return contents_->corrects;
}
const CollectionTotals& Collector::totals() const {
    return contents_->totals;
}
const SampleBudget& Collector::budget() const {
    return contents_->budget;
}

std::vector<std::pair<RowKey, const RowSamples*>> Collector::rows() const {
    std::vector<std::pair<RowKey, const RowSamples*>> rows;
    rows.reserve(contents_->rows.size());
    for (const Row& row : contents_->rows) {
        const auto text = [&](std::size_t label) { return contents_->label_texts[row.numbers.labels[label]]; };
        const RowKey key{.test_case = row.numbers.test_case,
                         .process = contents_->processes[row.numbers.process].key,
                         .operator_name = text(0),
                         .backend = text(1),
                         .implementation = text(2),
                         .phase = static_cast<Phase>(row.numbers.phase),
                         .range = row.numbers.range,
                         .outside_phases = row.numbers.outside_phases};
        rows.emplace_back(key, &row.samples);
    }
    std::sort(rows.begin(), rows.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
    return rows;
}

}  // namespace hostrange
