// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/line_table.h"

#include <dwarf.h>
#include <gelf.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

namespace hostrange {

namespace {

// Line tables are programs: each byte can make a row, for which libdw takes some 80 bytes.
constexpr std::uint64_t kMaxTableBytes = 8u << 20;    // of one unit; the largest real ones have about one MiB
constexpr std::uint64_t kMaxTablesBytes = 32u << 20;  // of all

// Calls visit(section, header, name) for each section with a name that has content, until that gives true.
template <typename Visit>
bool any_section(Dwarf_Die& unit, const Visit& visit) {
    Elf* elf = dwarf_getelf(dwarf_cu_getdwarf(unit.cu));
    std::size_t names = 0;
    if (elf == nullptr || elf_getshdrstrndx(elf, &names) != 0) return false;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf, section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
        const char* name = elf_strptr(elf, names, header.sh_name);
        if (name != nullptr && visit(section, header, std::string_view(name))) return true;
    }
    return false;
}

// How long the unit's line table is, as its first field says (DWARF 5, 6.2.4); UINT64_MAX if that cannot be read.
std::uint64_t table_bytes(Dwarf_Die& unit) {
    Dwarf_Attribute attribute;
    Dwarf_Word offset = 0;
    if (dwarf_attr(&unit, DW_AT_stmt_list, &attribute) == nullptr || dwarf_formudata(&attribute, &offset) != 0)
        return UINT64_MAX;
    std::uint64_t bytes = UINT64_MAX;
    any_section(unit, [&](Elf_Scn* section, const GElf_Shdr& header, std::string_view name) {
        if (!name.ends_with("debug_line")) return false;
        const Elf_Data* data = elf_getdata(section, nullptr);  // libdw has unpacked it in place
        std::uint32_t length = 0;
        const bool is_there = (header.sh_flags & SHF_COMPRESSED) == 0 && data != nullptr && data->d_buf != nullptr &&
                              offset <= data->d_size && data->d_size - offset >= sizeof length;
        if (!is_there) return true;
        std::memcpy(&length, static_cast<const char*>(data->d_buf) + offset, sizeof length);
        bytes = length;  // of 64-bit DWARF 0xffffffff, which is too long
        return true;
    });
    return bytes;
}

// libdw takes for granted that the strings a line table refers to have an end.
bool strings_end(Dwarf_Die& unit) {
    return !any_section(unit, [](Elf_Scn* section, const GElf_Shdr&, std::string_view name) {
        if (!name.ends_with("debug_str") && !name.ends_with("debug_line_str")) return false;
        const Elf_Data* data = elf_rawdata(section, nullptr);  // libdw has unpacked it in place
        return data != nullptr && data->d_buf != nullptr && data->d_size != 0 &&
               static_cast<const char*>(data->d_buf)[data->d_size - 1] != 0;
    });
}

constexpr std::uint64_t kLongestInstruction = 15;  // bytes

using SourcePlace = std::pair<int, int>;  // line, column

struct Source {
    const char* file;
    int line;
};

struct Row {
    Dwarf_Addr address = 0;
    SourcePlace place;
    bool begins_statement = false, ends_sequence = false;
    const char* file = nullptr;
};

Row row_at(Dwarf_Lines* lines, std::size_t index) {
    Row row;
    Dwarf_Line* line = dwarf_onesrcline(lines, index);
    if (line == nullptr) return row;
    dwarf_lineaddr(line, &row.address);
    dwarf_lineno(line, &row.place.first);
    dwarf_linecol(line, &row.place.second);
    dwarf_linebeginstatement(line, &row.begins_statement);
    dwarf_lineendsequence(line, &row.ends_sequence);
    row.file = dwarf_linesrc(line, nullptr, nullptr);
    return row;
}

// A unit may name one file in several ways: with its folder and without.
bool is_same_file(const char* one, const char* other) {
    if (one == nullptr) return false;
    const auto last_part = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
    return last_part(one) == last_part(other);
}

// Rows of code in the range that come from this file, not from before this line.
template <typename Visit>
void visit_rows(Dwarf_Lines* lines, std::size_t count, const Source& source, const AddressRange& range,
                bool only_statements, Visit&& visit) {
    std::size_t low = 0, high = count;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (row_at(lines, middle).address < range.begin)
            low = middle + 1;
        else
            high = middle;
    }
    SourcePlace last = {0, 0};
    for (; low < count; ++low) {
        const Row row = row_at(lines, low);
        if (row.address >= range.end) break;
        if (row.ends_sequence || (only_statements && !row.begins_statement)) continue;
        // Of code that has been spread out, parts that follow one another are one.
        const bool is_repeated = std::exchange(last, row.place) == row.place;
        if (is_repeated && !only_statements) continue;
        if (row.place.first >= std::max(source.line, 1) && is_same_file(row.file, source.file))
            visit(row.address, row.place);
    }
}

}  // namespace

bool LineTables::can_read(Dwarf_Die& unit) {
    const auto [found, is_new] = readable_.try_emplace(unit.addr, false);
    if (!is_new) return found->second;
    const std::uint64_t bytes = table_bytes(unit);
    if (bytes > kMaxTableBytes || bytes_read_ + bytes > kMaxTablesBytes || !strings_end(unit)) return false;
    bytes_read_ += bytes;
    return found->second = true;
}

const LineTables::Table& LineTables::table_of(Dwarf_Die& unit) {
    const auto [found, is_new] = tables_.try_emplace(unit.addr);
    if (!is_new || !can_read(unit)) return found->second;
    Table table;
    if (dwarf_getsrclines(&unit, &table.lines, &table.count) == 0) found->second = table;
    return found->second;
}

const char* LineTables::file_name(Dwarf_Die& unit, std::uint64_t number) {
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    if (!can_read(unit) || dwarf_getsrcfiles(&unit, &files, &count) != 0 || number >= count) return nullptr;
    return dwarf_filesrc(files, number, nullptr, nullptr);
}

void LineTables::find_beginnings(Dwarf_Die& unit, const char* file, int line, const std::vector<Instance>& instances) {
    const Table& table = table_of(unit);
    const Source source{file, line};
    std::vector<AddressRange> all;
    for (const Instance& one : instances)
        all.insert(all.end(), one.instance->ranges.begin(), one.instance->ranges.end());
    std::sort(all.begin(), all.end(),
              [](const AddressRange& one, const AddressRange& other) { return one.begin < other.begin; });
    // A statement's mark may stand a little before the code, at instructions that have been moved there from elsewhere.
    const auto is_marked_before = [&](std::uint64_t address, const AddressRange& range) {
        const auto after =
            std::upper_bound(all.begin(), all.end(), address,
                             [](std::uint64_t wanted, const AddressRange& one) { return wanted < one.begin; });
        return after != all.end() && after->begin == range.begin &&
               (after == all.begin() || address >= std::prev(after)->end);
    };
    const auto visit_own = [&](const Instance& one, auto&& visit) {
        const bool is_marked = one.instance->marks_statements;
        const std::uint64_t lead = is_marked ? kLongestInstruction : 0;
        for (const AddressRange& range : one.instance->ranges)
            visit_rows(table.lines, table.count, source, {range.begin - std::min(range.begin, lead), range.end},
                       is_marked, [&](std::uint64_t address, const SourcePlace& place) {
                           const auto& others = one.other_entries;
                           if (std::find(others.begin(), others.end(), address) != others.end()) return;
                           if (address < range.begin && !is_marked_before(address, range)) return;
                           const std::uint64_t here = std::max(address, range.begin);
                           if (!lies_in(one.inner, here)) visit(here, place);
                       });
    };

    SourcePlace first = {INT_MAX, INT_MAX};
    for (const Instance& one : instances)
        visit_own(one, [&](std::uint64_t, const SourcePlace& place) { first = std::min(first, place); });
    for (const Instance& one : instances) {
        std::vector<std::uint64_t>& found = one.instance->beginnings;
        visit_own(one, [&](std::uint64_t address, const SourcePlace& place) {
            if (place == first && (found.empty() || found.back() != address)) found.push_back(address);
        });
        if (one.instance->marks_statements) continue;
        std::map<SourcePlace, std::vector<AddressRange>> by_place;
        for (const AddressRange& range : one.instance->ranges) {
            std::vector<AddressRange>* last = nullptr;
            visit_rows(table.lines, table.count, source, range, false,
                       [&](std::uint64_t address, const SourcePlace& place) {
                           if (last != nullptr) last->back().end = address;
                           last = &by_place[place];
                           last->push_back({address, range.end});
                       });
        }
        for (auto& [place, ranges] : by_place)
            if (place.first != 0 && ranges.size() > 1) one.instance->repeated.push_back(std::move(ranges));
    }
}

}  // namespace hostrange
