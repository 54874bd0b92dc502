// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loader/probes/debug_info.h"

namespace hostrange {

// Where an inlined function is declared.
struct InlinedSource {
    const char* file;
    int line;
    bool marks_statements;  // the compiler marks the one instruction at which each statement begins
};

// Reads line tables of DWARF, as far as they say where a function's code begins.
class LineTables {
public:
    // Fills in what line tables say of the instances of one function: where its first statement begins, and what code
    // is repeated. The first statement is what has the lowest line and column, none above the declaration. `unit`: the
    // DIE of the unit with the line table. Rows that begin no statement (is_stmt, DWARF 5, 6.2.2) count where
    // statements are not marked.
    void find_beginnings(Dwarf_Die& unit, const InlinedSource& source, const std::vector<InlinedInstance*>& instances);

private:
    struct Table {
        Dwarf_Lines* lines = nullptr;
        std::size_t count = 0;
    };
    const Table& table_of(Dwarf_Die& unit);
    template <typename Visit>
    void visit_rows(Dwarf_Die& unit, const InlinedSource& source, const AddressRange& range, Visit&& visit);

    void find_repeated(Dwarf_Die& unit, const InlinedSource& source, InlinedInstance& instance);

    std::unordered_map<const void*, Table> tables_;  // by the place of the unit's DIE in memory
    std::uint64_t bytes_read_ = 0;
};

}  // namespace hostrange
