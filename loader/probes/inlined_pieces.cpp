// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/inlined_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace hostrange {

namespace {

constexpr int kMaxGap = 8;         // instructions of other code between two pieces of the inlined one
constexpr int kMaxStraight = 256;  // instructions from an entry to the first statement

using Kind = FlowInstruction::Kind;

bool contains(const std::vector<std::uint64_t>& sorted, std::uint64_t value) {
    return std::binary_search(sorted.begin(), sorted.end(), value);
}

}  // namespace

InlinedPieces::InlinedPieces(const WholeFunction& function, const InlinedInstance& instance,
                             const std::set<std::uint64_t>& all_beginnings)
    : function_(function), flow_(function.flow), instance_(instance), all_beginnings_(all_beginnings) {
    if (!flow_.problem().empty()) return;  // it has not even an entry
    for (const LandingPad& pad : function_.landing_pads) landings_.insert(pad.address);
    for (const FlowInstruction& instruction : flow_.instructions())
        for (const std::uint64_t successor : successors(instruction))
            predecessors_[successor].push_back(instruction.address);
    normal_ = reached_around({});
    gather();
    bridge_gaps();
}

std::vector<std::uint64_t> InlinedPieces::successors(const FlowInstruction& instruction) const {
    std::vector<std::uint64_t> result;
    // Behind a call that never returns, code may follow where exceptions land. Nothing else gets there by itself.
    const bool is_last = instruction.kind == Kind::kCall && landings_.contains(instruction.end());
    if (instruction.goes_on() && !is_last) result.push_back(instruction.end());
    if (instruction.target != 0) result.push_back(instruction.target);
    return result;
}

void InlinedPieces::gather() {
    for (const AddressRange& range : instance_.ranges) {
        const auto& all = flow_.instructions();
        auto next = std::lower_bound(
            all.begin(), all.end(), range.begin,
            [](const FlowInstruction& instruction, std::uint64_t address) { return instruction.address < address; });
        for (; next != all.end() && next->address < range.end; ++next) code_.insert(next->address);
    }
}

// Other code that has been moved in between, after which the inlined code goes on. Only inlined code leads there.
void InlinedPieces::bridge_gaps() {
    std::set<std::uint64_t> after;
    for (const std::uint64_t address : code_)
        for (const std::uint64_t successor : successors(*flow_.at(address)))
            if (!code_.contains(successor)) after.insert(successor);
    bool grows = true;
    while (grows) {
        grows = false;
        for (auto next = after.begin(); next != after.end();) {
            const bool bridged = add_gap(*next);
            grows |= bridged;
            next = bridged ? after.erase(next) : std::next(next);
        }
    }
}

bool InlinedPieces::add_gap(std::uint64_t address) {
    std::vector<std::uint64_t> gap;
    const FlowInstruction* instruction = flow_.at(address);
    for (int step = 0; step <= kMaxGap && instruction != nullptr; ++step) {
        if (code_.contains(instruction->address)) {
            // Where the first statement begins, another call does, a copy of this one.
            if (contains(instance_.beginnings, instruction->address)) return false;
            code_.insert(gap.begin(), gap.end());
            return true;
        }
        if (instruction->kind != Kind::kPlain || all_beginnings_.contains(instruction->address)) return false;
        if (step > 0 ? flow_.is_branch_target(instruction->address)
                     : is_entered_from_outside(instruction->address, code_))
            return false;
        gap.push_back(instruction->address);
        instruction = flow_.at(instruction->end());
    }
    return false;
}

bool InlinedPieces::is_entered_from_outside(std::uint64_t address, const std::set<std::uint64_t>& inside) const {
    const auto found = predecessors_.find(address);
    if (found != predecessors_.end())
        return std::any_of(found->second.begin(), found->second.end(),
                           [&](std::uint64_t predecessor) { return !inside.contains(predecessor); });
    // The function's first instruction, or the target of a table.
    return address == flow_.entry() || (!landings_.contains(address) && flow_.is_branch_target(address));
}

std::vector<InlinedPiece> InlinedPieces::split() const {
    // Neighbours, in either direction; exceptions lead from calls to where they land.
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> neighbours;
    const auto join = [&](std::uint64_t one, std::uint64_t other) {
        if (!code_.contains(one) || !code_.contains(other)) return;
        neighbours[one].push_back(other);
        neighbours[other].push_back(one);
    };
    for (const std::uint64_t address : code_)
        for (const std::uint64_t successor : successors(*flow_.at(address))) join(address, successor);
    for (const LandingPad& pad : function_.landing_pads)
        for (auto call = code_.lower_bound(pad.begin); call != code_.end() && *call < pad.end; ++call)
            if (flow_.at(*call)->kind == Kind::kCall) join(*call, pad.address);

    std::vector<InlinedPiece> pieces;
    std::set<std::uint64_t> seen;
    for (const std::uint64_t start : code_) {
        if (!seen.insert(start).second) continue;
        InlinedPiece piece;
        std::vector<std::uint64_t> pending = {start};
        while (!pending.empty()) {
            const std::uint64_t address = pending.back();
            pending.pop_back();
            piece.code.insert(address);
            for (const std::uint64_t neighbour : neighbours[address])
                if (seen.insert(neighbour).second) pending.push_back(neighbour);
        }
        describe(piece);
        // What nothing leads to is padding, or entered by exceptions that others throw.
        if (!piece.entries.empty()) pieces.push_back(std::move(piece));
    }
    return pieces;
}

void InlinedPieces::describe(InlinedPiece& piece) const {
    for (const std::uint64_t address : piece.code) {
        piece.is_straight = piece.is_straight && flow_.at(address)->kind == Kind::kPlain;
        if (is_entered_from_outside(address, piece.code)) piece.entries.push_back(address);
    }
    for (const std::uint64_t address : instance_.beginnings)
        if (piece.code.contains(address) && !is_on_loop(address, piece.code)) piece.beginnings.push_back(address);
}

// Whether the instruction runs again after itself, in this code; in the whole function if that is empty.
bool InlinedPieces::is_on_loop(std::uint64_t address, const std::set<std::uint64_t>& code) const {
    std::vector<std::uint64_t> pending = {address};
    std::set<std::uint64_t> seen;
    while (!pending.empty()) {
        const std::uint64_t from = pending.back();
        pending.pop_back();
        for (const std::uint64_t successor : successors(*flow_.at(from))) {
            if (successor == address) return true;
            if ((code.empty() || code.contains(successor)) && flow_.at(successor) != nullptr &&
                seen.insert(successor).second)
                pending.push_back(successor);
        }
    }
    return false;
}

// Whether one of `to` (sorted) is what runs after `from`, without a branch.
bool InlinedPieces::leads_straight(std::uint64_t from, const std::vector<std::uint64_t>& to) const {
    const FlowInstruction* instruction = flow_.at(from);
    for (int step = 0; step < kMaxStraight && instruction != nullptr; ++step) {
        if (contains(to, instruction->address)) return true;
        if (instruction->kind == Kind::kJump)
            instruction = flow_.at(instruction->target);
        else if (instruction->kind == Kind::kPlain || instruction->kind == Kind::kCall)
            instruction = flow_.at(instruction->end());
        else
            return false;
    }
    return false;
}

// Whether a jump out of the piece goes to a little before it: part of a loop of its own may have been moved there.
bool InlinedPieces::leads_back(const InlinedPiece& piece) const {
    for (const std::uint64_t address : piece.code) {
        const FlowInstruction& jump = *flow_.at(address);
        if (jump.target == 0 || piece.code.contains(jump.target)) continue;
        const FlowInstruction* instruction = flow_.at(jump.target);
        for (int step = 0; step < kMaxGap && instruction != nullptr && instruction->kind == Kind::kPlain; ++step) {
            instruction = flow_.at(instruction->end());
            if (instruction != nullptr && piece.code.contains(instruction->address)) return true;
        }
    }
    return false;
}

// Whether something is there several times: copies of the call, as of a loop around it that has been unrolled. Parts of
// a statement that has been spread out look the same, so more than a second call of the same function is asked for only
// where there is a loop around.
bool InlinedPieces::has_repeated_code(const std::vector<InlinedPiece>& kept) const {
    for (const std::vector<AddressRange>& ranges : instance_.repeated) {
        std::size_t calls = 0, copies = 0;
        for (const InlinedPiece& piece : kept) {
            calls += std::count_if(piece.code.begin(), piece.code.end(), [&](std::uint64_t address) {
                return flow_.at(address)->kind == Kind::kCall && normal_.contains(address) && lies_in(ranges, address);
            });
            if (!is_on_loop(piece.entries.front(), {})) continue;
            copies += std::count_if(ranges.begin(), ranges.end(), [&](const AddressRange& range) {
                return piece.code.contains(range.begin) && !is_on_loop(range.begin, piece.code);
            });
        }
        if (calls > 1 || copies > 1) return true;
    }
    return false;
}

// What the function runs without exceptions and without passing one of these pieces.
std::set<std::uint64_t> InlinedPieces::reached_around(const std::vector<InlinedPiece>& kept) const {
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> pending;
    const auto visit = [&](std::uint64_t address) {
        if (flow_.at(address) == nullptr) return;
        const bool is_kept = std::any_of(kept.begin(), kept.end(),
                                         [&](const InlinedPiece& piece) { return piece.code.contains(address); });
        if (!is_kept && seen.insert(address).second) pending.push_back(address);
    };
    for (const FlowInstruction& instruction : flow_.instructions())
        if (!predecessors_.contains(instruction.address) && is_entered_from_outside(instruction.address, {}))
            visit(instruction.address);
    visit(flow_.entry());
    while (!pending.empty()) {
        const std::uint64_t address = pending.back();
        pending.pop_back();
        for (const std::uint64_t successor : successors(*flow_.at(address))) visit(successor);
    }
    return seen;
}

// Whether code leads there that runs without an exception.
bool InlinedPieces::is_entered_normally(std::uint64_t address, const InlinedPiece& piece) const {
    const auto before = predecessors_.find(address);
    return before == predecessors_.end() ||
           std::any_of(before->second.begin(), before->second.end(), [&](std::uint64_t predecessor) {
               return !piece.code.contains(predecessor) && normal_.contains(predecessor);
           });
}

void InlinedPieces::add_places(const InlinedPiece& piece, bool has_copies, InlinedBeginnings& result) const {
    const auto doubt = [&](const std::string& reason) {
        if (result.doubt.empty()) result.doubt = reason;
    };
    // Where exceptions lead to that others have thrown, no call begins, as long as it is known where calls do.
    const auto aside = std::find_if(piece.entries.begin(), piece.entries.end(), [&](std::uint64_t entry) {
        return !leads_straight(entry, piece.beginnings) &&
               (piece.beginnings.empty() || is_entered_normally(entry, piece));
    });
    const bool has_one_way_in = piece.entries.size() == 1 && piece.beginnings.size() <= 1;
    if (has_one_way_in && (aside == piece.entries.end() || !has_copies)) {
        const std::uint64_t entry = piece.entries.front();
        if (is_on_loop(entry, piece.code)) doubt(fmt::format("a loop goes back to where it begins, at {:#x}", entry));
        if (leads_back(piece)) doubt(fmt::format("a loop goes back to before where it begins, at {:#x}", entry));
        result.places.push_back({entry});
    } else if (!piece.beginnings.empty()) {
        if (aside != piece.entries.end())
            doubt(fmt::format("its code is also entered at {:#x}, which is not taken for a call", *aside));
        for (const std::uint64_t address : piece.beginnings)
            result.places.push_back({address, piece.beginnings.size() > 1});
    } else {
        if (piece.entries.size() > 1)
            doubt(fmt::format("its code is entered at {} places, the second at {:#x}", piece.entries.size(),
                              piece.entries[1]));
        for (const std::uint64_t address : piece.entries) result.places.push_back({address});
    }
}

InlinedBeginnings InlinedPieces::find() {
    InlinedBeginnings result;
    std::vector<InlinedPiece> pieces = split();
    if (pieces.empty()) {
        result.problem = "no instruction of the function leads to its code";
        return result;
    }
    const auto keep = [&](auto&& wanted) {
        const auto others = std::stable_partition(pieces.begin(), pieces.end(), wanted);
        result.pieces.assign(pieces.begin(), others);
    };
    bool is_known = true;
    keep([&](const InlinedPiece& piece) {
        return std::any_of(instance_.beginnings.begin(), instance_.beginnings.end(),
                           [&](std::uint64_t address) { return piece.code.contains(address); });
    });
    if (result.pieces.empty()) {
        is_known = false;
        keep([](const InlinedPiece& piece) { return !piece.is_straight; });
    }
    if (result.pieces.empty()) keep([](const InlinedPiece&) { return true; });
    if (!is_known && result.pieces.size() > 1)
        result.doubt = fmt::format("its code is in {} pieces, and where its first statement begins is not known",
                                   result.pieces.size());
    for (const InlinedPiece& piece : result.pieces) add_places(piece, result.pieces.size() > 1, result);
    // Line tables tell copies from a statement that stands in several places not even with gcc, as at link time or
    // where a template is inlined into another instance of itself.
    if (result.doubt.empty() && result.places.size() > 1)
        result.doubt = fmt::format("it is copied or spread out, and taken to begin at {} places, the second at {:#x}",
                                   result.places.size(), result.places[1].address);
    if (result.doubt.empty() && has_repeated_code(result.pieces))
        result.doubt = "parts of it are there several times, as in a loop that has been unrolled";
    const std::set<std::uint64_t> around = reached_around(result.pieces);
    for (std::size_t i = result.pieces.size(); i < pieces.size() && result.doubt.empty(); ++i)
        if (!(pieces[i].is_straight && is_known && instance_.marks_statements) &&
            std::any_of(pieces[i].code.begin(), pieces[i].code.end(),
                        [&](std::uint64_t address) { return around.contains(address); }))
            result.doubt = fmt::format("code of it at {:#x} is also run without its beginning", pieces[i].entries[0]);
    return result;
}

}  // namespace hostrange
