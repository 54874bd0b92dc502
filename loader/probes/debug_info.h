// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hostrange {

// Half-open, virtual addresses in the file.
struct AddressRange {
    std::uint64_t begin, end;
};

bool lies_in(const std::vector<AddressRange>& ranges, std::uint64_t address);

// One call of a function that the compiler has put in place of the call.
struct InlinedInstance {
    std::string symbol;                // linkage name of the inlined function; empty if the debug information has none
    std::string name;                  // demangled; without a linkage name, composed to look like it
    std::uint64_t container_address;   // entry of the function that it is inlined into
    std::vector<AddressRange> ranges;  // of its code, sorted; none if the optimiser has left none
    std::uint64_t entry;               // the first instruction that runs
    unsigned depth;                    // inlined calls around it, in the same function
    bool marks_statements = false;     // the compiler has marked the one place where each copy of a statement begins
    // Where its first statement begins: once in each copy that the optimiser has made. Sorted; empty if not known.
    std::vector<std::uint64_t> beginnings;
    // Where it has not: code that comes from one place of the source, in several copies. One entry for each such place.
    std::vector<std::vector<AddressRange>> repeated;
};

struct InlinedInstances {
    std::vector<InlinedInstance> instances;  // by container, then from the outside in, then by entry
    bool has_debug_info = false;
    std::string problem;  // not empty: what could not be read, and why; what was read is kept
};

// Reads the DWARF (2 to 5, compressed and split too) of the file at `path`: its own, not a separate debug file's.
// `wanted` is asked once for each inlined function. Hostile input: time and memory are bounded, see the limits in the
// source; libdw checks what it reads.
InlinedInstances find_inlined_instances(
    const std::string& path,
    const std::function<bool(const std::string& symbol, const std::string& demangled)>& wanted);

}  // namespace hostrange
