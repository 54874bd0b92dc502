// SPDX-License-Identifier: Apache-2.0
// Records of the ring buffer, through the assembler and the collector; no scope may vanish uncounted.
//
// An input is two bytes (how long a tree may be, how much memory the samples may take) and then records in a short
// form, so that the fuzzer's changes keep them well-formed more often than not:
//   byte 0   flags of the record in the low three bits, then two bits of thread, one of process, one that makes the
//            header's count wrong, one that says that a raw record follows
//   byte 1   number of the tree in the low three bits, number of the part above; part 31: a record that stands by
//   itself byte 2   how many scopes follow (raw: how many bytes)
// and for each scope: site, id, parent, ending; the ending's upper bits tell how wide id, parent and the duration that
// follows are.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "loader/collect/call_tree.h"
#include "loader/collect/statistics.h"
#include "tests/fuzz/fuzzer.h"

namespace {

using hostrange::CallTree;
using hostrange::Collector;
using hostrange::SampleSet;
using hostrange::TreeAssembler;

using Record = std::vector<std::byte>;

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
    bool empty() const { return rest_.empty(); }

    // A little-endian number; bytes that are not there are zero.
    std::uint64_t number(std::size_t bytes) {
        std::uint64_t value = 0;
        const std::size_t count = std::min(bytes, rest_.size());
        if (count != 0) std::memcpy(&value, rest_.data(), count);
        rest_ = rest_.subspan(count);
        return value;
    }

private:
    std::span<const std::uint8_t> rest_;
};

hostrange_scope read_scope(Input& input) {
    hostrange_scope scope{};
    scope.site = input.number(1);
    scope.id = input.number(1);
    scope.parent = input.number(1);
    const std::uint64_t ending = input.number(1);
    scope.ending = ending & 3;
    if (ending & 0x10) scope.id |= input.number(3) << 8;
    if (ending & 0x20) scope.parent |= input.number(3) << 8;
    scope.duration_ns = input.number(ending & 0x40 ? 8 : 1);
    return scope;
}

template <typename Part>
void append(Record& record, const Part& part) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&part);
    record.insert(record.end(), bytes, bytes + sizeof part);
}

bool is_exit(const hostrange_scope& scope) {
    return scope.ending == HOSTRANGE_ENDED_BY_EXIT || scope.ending == HOSTRANGE_ENDED_LATE;
}

std::uint64_t count_exits(const Record& record) {
    std::uint64_t count = 0;
    hostrange_scope scope;
    for (std::size_t at = sizeof(hostrange_tree_header); at + sizeof scope <= record.size(); at += sizeof scope) {
        std::memcpy(&scope, &record[at], sizeof scope);
        if (is_exit(scope)) ++count;
    }
    return count;
}

Record read_record(Input& input) {
    constexpr std::uint64_t kWrongCount = 0x40, kRaw = 0x80;
    const std::uint64_t shape = input.number(1), place = input.number(1), count = input.number(1);
    Record record;
    if (shape & kRaw) {
        for (std::uint64_t i = 0; i < count; ++i) record.push_back(static_cast<std::byte>(input.number(1)));
        return record;
    }
    hostrange_tree_header header{};
    header.flags = shape & 7;
    header.thread_id = shape >> 3 & 3;
    header.process_id = shape >> 5 & 1;
    header.tree = place & 7;
    header.part = place >> 3;
    if (header.part == 31) header.flags |= HOSTRANGE_TREE_DETACHED;
    header.scope_count = count + (shape & kWrongCount ? 1 : 0);
    std::memset(header.comm, static_cast<int>(place), sizeof header.comm);  // perhaps without a zero byte
    append(record, header);
    for (std::uint64_t i = 0; i < count; ++i) {
        append(record, read_scope(input));
    }
    return record;
}

const std::vector<hostrange::RangeTraits> kRanges = {
    {"call", false, {}}, {"construct", true, {}}, {"copy", false, {0}}, {"submit", false, {1, 2}}};

void add_sites(Collector& collector) {
    constexpr std::uint32_t kNoRange = 9;
    collector.add_site({0, "gemm", "", ""});
    collector.add_site({0, "add", "", ""});
    collector.add_site({1, "", "", ""});
    collector.add_site({2, "", "cpu", ""});
    collector.add_site({3, "", "cpu", "0"});
    collector.add_site({3, "", "nvidia", "1"});
    collector.add_site({kNoRange, "", "", ""});
}

void check_samples(const SampleSet& samples) {
    if (samples.count() == 0) return;
    const double minimum = static_cast<double>(samples.minimum()), maximum = static_cast<double>(samples.maximum());
    for (const double value : {samples.quantile(0.01), samples.median(), samples.quantile(0.99)})
        require(value >= minimum && value <= maximum, "a quantile lies between minimum and maximum");
    require(samples.standard_deviation() >= 0, "a deviation is a number");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kBytesPerStep = 64;
    Input input(data, size);
    TreeAssembler assembler(1 + input.number(1));
    Collector collector(kRanges, input.number(1) * kBytesPerStep);
    add_sites(collector);

    std::uint64_t exits = 0, exits_in_trees = 0, scopes = 0, trees = 0;
    while (!input.empty()) {
        const Record record = read_record(input);
        const std::uint64_t malformed = assembler.losses().malformed_records;
        const CallTree* tree = assembler.add(record);
        if (assembler.losses().malformed_records == malformed) exits += count_exits(record);
        if (tree == nullptr) continue;
        exits_in_trees += std::count_if(tree->scopes.begin(), tree->scopes.end(), is_exit);
        collector.add_tree(*tree);
        if (collector.totals().trees == trees) continue;  // the late end of a scope that has been counted
        ++trees;
        scopes += tree->scopes.size();
    }
    require(exits == exits_in_trees + assembler.losses().broken_tree_scopes + assembler.pending_scopes(),
            "each scope is in a tree, in a broken one, or waits");

    const hostrange::CollectionTotals& totals = collector.totals();
    require(trees == totals.trees, "each tree is counted");
    require(scopes == totals.scopes + totals.unwound + totals.outside_condition + totals.unknown_site,
            "each scope of a tree is counted once");
    std::uint64_t samples = 0, unwound = 0;
    for (const auto& [key, row] : collector.rows()) {
        samples += row->inclusive.count();
        unwound += row->unwound;
        require(row->self.count() == row->inclusive.count(), "each sample has a self time");
        check_samples(row->inclusive);
        check_samples(row->self);
    }
    require(samples == totals.scopes && unwound == totals.unwound, "rows hold what the totals say");
    return 0;
}
