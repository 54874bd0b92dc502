// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "loader/probes/debug_info.h"
#include "loader/probes/function_parts.h"

namespace hostrange {

// Code of an inlined call that hangs together.
struct InlinedPiece {
    std::set<std::uint64_t> code;        // addresses of its instructions
    std::vector<std::uint64_t> entries;  // those that other code leads to, sorted
    std::vector<std::uint64_t>
        beginnings;           // those where the first statement begins and no loop of the piece returns to
    bool is_straight = true;  // neither calls nor jumps: it may have been moved here out of the call
};

// A place where calls begin.
struct InlinedBeginning {
    std::uint64_t address;
    bool ends_another = false;  // the code before it belongs to another call, which ends here
    bool repeats = false;       // loops of the call itself come by here too
};

struct InlinedBeginnings {
    std::vector<InlinedBeginning> places;
    std::vector<InlinedPiece> pieces;  // those that they lie in
    std::string doubt;                 // not empty: calls may be missed or counted twice, and why
    std::string problem;               // not empty: none was found, and why
};

// Optimisers copy inlined code (they unroll the loop around it), move parts of it away, and thread jumps past its
// beginning, but debug information describes all that as one call. This finds where calls begin in it.
//
// What debug information says to be the call's code is taken apart into pieces; short straight gaps are bridged. A
// piece in which the first statement begins is a copy of the call. Where the statement's place is not known, every
// piece with jumps or calls is one.
class InlinedPieces {
public:
    // A function whose code could not be understood has no pieces. `all_beginnings`: of this and other calls in the
    // function.
    InlinedPieces(const WholeFunction& function, const InlinedInstance& instance,
                  const std::set<std::uint64_t>& all_beginnings);

    InlinedBeginnings find();

    // Where an instruction leads to, exceptions excepted.
    std::vector<std::uint64_t> successors(const FlowInstruction& instruction) const;

    // Whether instructions lead there that are not among `inside`, exceptions excepted.
    bool is_entered_from_outside(std::uint64_t address, const std::set<std::uint64_t>& inside) const;

private:
    void gather();
    void bridge_gaps();
    bool add_gap(std::uint64_t address);
    std::vector<InlinedPiece> split() const;
    void describe(InlinedPiece& piece) const;
    bool is_on_loop(std::uint64_t address, const std::set<std::uint64_t>& code) const;
    bool leads_straight(std::uint64_t from, const std::vector<std::uint64_t>& to) const;
    bool has_repeated_code(const std::vector<InlinedPiece>& kept) const;
    bool leads_back(const InlinedPiece& piece) const;
    std::set<std::uint64_t> reached_around(const std::vector<InlinedPiece>& kept) const;
    bool is_entered_normally(std::uint64_t address, const InlinedPiece& piece) const;
    void add_places(const InlinedPiece& piece, bool has_copies, InlinedBeginnings& result) const;

    const WholeFunction& function_;
    const ControlFlow& flow_;
    const InlinedInstance& instance_;
    const std::set<std::uint64_t>& all_beginnings_;
    std::set<std::uint64_t> landings_;  // where exceptions land
    std::set<std::uint64_t> code_;      // of the call
    std::set<std::uint64_t> normal_;    // what runs without exceptions
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> predecessors_;
};

}  // namespace hostrange
