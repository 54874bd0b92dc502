// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/inlined_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace hostrange {

namespace {

constexpr int kMaxGap = 8;  // instructions of other code between two pieces of the inlined one

using Kind = FlowInstruction::Kind;

class PieceFinder {
public:
    PieceFinder(const WholeFunction& function, const FlowGraph& graph, const InlinedInstance& instance,
                const std::set<std::uint64_t>& all_beginnings)
        : function_(function),
          flow_(function.flow),
          graph_(graph),
          instance_(instance),
          all_beginnings_(all_beginnings) {}

    InlinedBeginnings find() {
        gather();
        bridge_gaps();
        pieces_ = split();
        if (pieces_.empty()) {
            result_.problem = "no instruction of the function leads to its code";
            return std::move(result_);
        }
        keep_copies();
        for (const InlinedPiece& piece : result_.pieces) add_places(piece);
        // Line tables do not always tell copies from a statement that stands in several places.
        if (result_.places.size() > 1)
            doubt(fmt::format("it is copied or spread out, and taken to begin at {} places, the second at {:#x}",
                              result_.places.size(), result_.places[1].address));
        if (!is_known_ && has_loop())
            doubt("it has a loop, which may be one around it, as it is not known where it begins");
        if (has_repeated_code()) doubt("parts of it are there several times, as in a loop that has been unrolled");
        look_at_others();
        look_at_shared_code();
        return std::move(result_);
    }

private:
    void doubt(const std::string& reason) {
        if (result_.doubt.empty()) result_.doubt = reason;
    }

    bool is_own(std::uint64_t address) const { return code_.contains(address); }

    static bool is_in_one_of(const std::vector<InlinedPiece>& pieces, std::uint64_t address) {
        return std::any_of(pieces.begin(), pieces.end(),
                           [&](const InlinedPiece& piece) { return piece.contains(address); });
    }

    static auto in(const InlinedPiece& piece) {
        return [&piece](std::uint64_t address) { return piece.contains(address); };
    }

    void gather() {
        for (const AddressRange& range : instance_.ranges) {
            const auto& all = flow_.instructions();
            auto next = std::lower_bound(all.begin(), all.end(), range.begin,
                                         [](const FlowInstruction& instruction, std::uint64_t address) {
                                             return instruction.address < address;
                                         });
            for (; next != all.end() && next->address < range.end; ++next) code_.insert(next->address);
        }
    }

    // Other code that has been moved in between, after which the inlined code goes on. Only inlined code leads there.
    void bridge_gaps() {
        std::set<std::uint64_t> after;
        for (const std::uint64_t address : code_)
            for (const std::uint64_t successor : graph_.successors(*flow_.at(address)))
                if (!is_own(successor)) after.insert(successor);
        while (std::erase_if(after, [&](std::uint64_t address) { return add_gap(address); }) > 0) {
        }
    }

    bool add_gap(std::uint64_t address) {
        std::vector<std::uint64_t> gap;
        const FlowInstruction* instruction = flow_.at(address);
        for (int step = 0; step <= kMaxGap && instruction != nullptr; ++step) {
            const std::uint64_t here = instruction->address;
            if (is_own(here)) {
                // Where the first statement begins, another call does, a copy of this one.
                if (std::binary_search(instance_.beginnings.begin(), instance_.beginnings.end(), here)) return false;
                code_.insert(gap.begin(), gap.end());
                return true;
            }
            if (instruction->kind != Kind::kPlain || all_beginnings_.contains(here)) return false;
            if (step > 0 ? flow_.is_branch_target(here)
                         : graph_.is_entered(here, [&](std::uint64_t from) { return is_own(from); }))
                return false;
            gap.push_back(here);
            instruction = flow_.at(instruction->end());
        }
        return false;
    }

    std::vector<InlinedPiece> split() const {
        // Neighbours, in either direction; exceptions lead from calls to where they land.
        std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> neighbours;
        const auto join = [&](std::uint64_t one, std::uint64_t other) {
            if (!is_own(one) || !is_own(other)) return;
            neighbours[one].push_back(other);
            neighbours[other].push_back(one);
        };
        for (const std::uint64_t address : code_)
            for (const std::uint64_t successor : graph_.successors(*flow_.at(address))) join(address, successor);
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

    void describe(InlinedPiece& piece) const {
        for (const std::uint64_t address : piece.code) {
            piece.is_straight = piece.is_straight && flow_.at(address)->kind == Kind::kPlain;
            if (graph_.is_entered(address, in(piece))) piece.entries.push_back(address);
        }
        for (const std::uint64_t address : instance_.beginnings)
            if (piece.contains(address) && !graph_.is_on_loop(address, in(piece))) piece.beginnings.push_back(address);
    }

    // ---- which pieces are copies of the call, and where they begin

    void keep_copies() {
        keep([&](const InlinedPiece& piece) {
            return std::any_of(instance_.beginnings.begin(), instance_.beginnings.end(), in(piece));
        });
        is_known_ = !result_.pieces.empty();
        if (result_.pieces.empty()) keep([&](const InlinedPiece& piece) { return piece.contains(instance_.entry); });
        if (result_.pieces.empty()) keep([](const InlinedPiece& piece) { return !piece.is_straight; });
        if (result_.pieces.empty()) keep([](const InlinedPiece&) { return true; });
    }

    // Of pieces_, those that are wanted go into the result.
    template <typename Wanted>
    void keep(Wanted&& wanted) {
        const auto others = std::stable_partition(pieces_.begin(), pieces_.end(), wanted);
        if (others == pieces_.begin()) return;
        result_.pieces.assign(pieces_.begin(), others);
        pieces_.erase(pieces_.begin(), others);
    }

    void add_place(const InlinedPiece& piece, std::uint64_t address, bool ends_another = false) {
        result_.places.push_back({address, ends_another, graph_.is_on_loop(address, in(piece))});
    }

    void add_places(const InlinedPiece& piece) {
        // Where exceptions lead to that others have thrown, no call begins, as long as it is known where calls do.
        const auto aside = std::find_if(piece.entries.begin(), piece.entries.end(), [&](std::uint64_t entry) {
            return !graph_.leads_straight(entry, piece.beginnings) &&
                   (piece.beginnings.empty() || graph_.is_entered_normally(entry, in(piece)));
        });
        const bool has_one_way_in = piece.entries.size() == 1 && piece.beginnings.size() <= 1;
        if (has_one_way_in && (aside == piece.entries.end() || result_.pieces.size() == 1)) {
            add_place(piece, piece.entries.front());
            if (result_.places.back().repeats || leads_back(piece))
                doubt(fmt::format("a loop goes back to where it begins, at {:#x}", piece.entries.front()));
        } else if (!piece.beginnings.empty()) {
            if (aside != piece.entries.end())
                doubt(fmt::format("its code is also entered at {:#x}, which is not taken for a call", *aside));
            for (const std::uint64_t address : piece.beginnings) add_place(piece, address, piece.beginnings.size() > 1);
        } else {
            for (const std::uint64_t address : piece.entries) add_place(piece, address);
        }
    }

    // ---- what speaks against it

    // Whether a jump out of the piece goes to a little before it: part of a loop of its own may have been moved there.
    bool leads_back(const InlinedPiece& piece) const {
        for (const std::uint64_t address : piece.code) {
            const FlowInstruction& jump = *flow_.at(address);
            if (jump.target == 0 || piece.contains(jump.target)) continue;
            const FlowInstruction* instruction = flow_.at(jump.target);
            for (int step = 0; step < kMaxGap && instruction != nullptr && instruction->kind == Kind::kPlain; ++step) {
                instruction = flow_.at(instruction->end());
                if (instruction != nullptr && piece.contains(instruction->address)) return true;
            }
        }
        return false;
    }

    bool has_loop() const {
        return std::any_of(result_.pieces.begin(), result_.pieces.end(), [&](const InlinedPiece& piece) {
            return std::any_of(piece.code.begin(), piece.code.end(), [&](std::uint64_t address) {
                const std::uint64_t target = flow_.at(address)->target;
                return target != 0 && piece.contains(target) && graph_.is_on_loop(target, in(piece));
            });
        });
    }

    // Whether something is there several times: copies of the call, as of a loop around it that has been unrolled.
    // Parts of a statement that has been spread out look the same, so more than a second call of the same function is
    // asked for only where there is a loop around.
    bool has_repeated_code() const {
        for (const std::vector<AddressRange>& ranges : instance_.repeated) {
            std::size_t calls = 0, copies = 0;
            for (const InlinedPiece& piece : result_.pieces) {
                calls += std::count_if(piece.code.begin(), piece.code.end(), [&](std::uint64_t address) {
                    return flow_.at(address)->kind == Kind::kCall && graph_.runs_without_exception(address) &&
                           lies_in(ranges, address);
                });
                if (!graph_.is_on_loop(piece.entries.front(), [](std::uint64_t) { return true; })) continue;
                copies += std::count_if(ranges.begin(), ranges.end(), [&](const AddressRange& range) {
                    return piece.contains(range.begin) && !graph_.is_on_loop(range.begin, in(piece));
                });
            }
            if (calls > 1 || copies > 1) return true;
        }
        return false;
    }

    // Pieces that are no copies should be run by those that are. Straight ones may have been moved to before them.
    void look_at_others() {
        const auto is_in_copy = [&](std::uint64_t address) { return is_in_one_of(result_.pieces, address); };
        const auto is_elsewhere = [&](std::uint64_t address) { return !is_in_copy(address); };
        const std::set<std::uint64_t> around = graph_.reached_around(is_in_copy);
        for (const InlinedPiece& piece : pieces_) {
            if (piece.is_straight && is_known_ && instance_.marks_statements) continue;
            const std::uint64_t entry = piece.entries.front();
            // A loop of the code around runs it, and comes by no beginning.
            const bool is_repeated = graph_.is_on_loop(entry, is_elsewhere) && !graph_.is_on_loop(entry, in(piece));
            if (is_repeated || std::any_of(piece.code.begin(), piece.code.end(),
                                           [&](std::uint64_t address) { return around.contains(address); }))
                doubt(fmt::format("code of it at {:#x} is also run without its beginning", piece.entries.front()));
        }
    }

    // What two calls begin with is made one where they lie on two ways, and counts as the first one's: from there the
    // code leads either to the rest of this call or to where another begins.
    void look_at_shared_code() {
        if (pieces_.empty()) return;
        std::vector<std::uint64_t> ways_out;
        for (const InlinedPiece& piece : result_.pieces) {
            if (!piece.is_straight) return;
            for (const std::uint64_t address : piece.code)
                for (const std::uint64_t successor : graph_.successors(*flow_.at(address)))
                    if (!piece.contains(successor)) ways_out.push_back(successor);
        }
        const auto begins_other = [&](std::uint64_t address) {
            return all_beginnings_.contains(address) && !is_own(address);
        };
        const std::set<std::uint64_t> without_rest = graph_.reached(ways_out, [&](std::uint64_t address) {
            return !is_in_one_of(result_.pieces, address) && !is_in_one_of(pieces_, address);
        });
        const auto other = std::find_if(without_rest.begin(), without_rest.end(), begins_other);
        if (other == without_rest.end()) return;
        const std::set<std::uint64_t> without_other = graph_.reached(ways_out, [&](std::uint64_t address) {
            return !is_in_one_of(result_.pieces, address) && !begins_other(address);
        });
        if (std::any_of(without_other.begin(), without_other.end(),
                        [&](std::uint64_t address) { return is_in_one_of(pieces_, address); }))
            doubt(fmt::format("its beginning may be that of another call, too, which goes on at {:#x}", *other));
    }

    const WholeFunction& function_;
    const ControlFlow& flow_;
    const FlowGraph& graph_;
    const InlinedInstance& instance_;
    const std::set<std::uint64_t>& all_beginnings_;
    std::set<std::uint64_t> code_;      // of the call
    std::vector<InlinedPiece> pieces_;  // of the call; in the end those that are no copies of it
    bool is_known_ = false;             // where its first statement begins
    InlinedBeginnings result_;
};

}  // namespace

InlinedBeginnings find_inlined_beginnings(const WholeFunction& function, const FlowGraph& graph,
                                          const InlinedInstance& instance,
                                          const std::set<std::uint64_t>& all_beginnings) {
    return PieceFinder(function, graph, instance, all_beginnings).find();
}

}  // namespace hostrange
