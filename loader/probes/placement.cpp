// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace hostrange {

namespace {

constexpr std::int32_t kUretprobeStackAdjust = -8;  // it fires when the return address has been popped already
constexpr std::size_t kMaxNamesInNote = 3;

// How far tail jumps are followed into functions that are not probed. Each end there costs a probe whoever calls.
constexpr unsigned kMostFollowed = 3;
constexpr std::size_t kMostCalleeEnds = 16;

class SiteWriter {
public:
    SiteWriter(const Placement& placement, Surroundings& surroundings, FilePlan& plan)
        : placement_(placement), surroundings_(surroundings), plan_(plan) {}

    void run() {
        for (const SymbolMatch& match : placement_.matches) {
            match_ = &match;
            index_ = static_cast<std::uint32_t>(plan_.functions.size());
            note_ = placement_.note;
            PlannedFunction function;
            function.symbol = placement_.symbol;
            function.other_symbols = placement_.other_symbols;
            function.name = placement_.name;
            function.range = match.range;
            function.labels = match.labels;
            const std::uint64_t begin = placement_.instance ? placement_.instance->entry : placement_.group.address;
            function.file_offset = surroundings_.file.file_offset(begin).value_or(0);
            function.kind = placement_.instance ? PlannedFunction::Kind::kInlined : PlannedFunction::Kind::kFunction;
            if (match.role != Role::kScope) function.kind = PlannedFunction::Kind::kPoint;
            if (placement_.instance) function.container = demangle(placement_.group.symbols.front()->name);
            function.doubt = placement_.inlined.doubt;
            plan_.functions.push_back(function);
            add_match();
            plan_.functions[index_].note = note_;
            plan_.functions[index_].ends = ends_;
        }
    }

private:
    Site site(SiteKind kind, const Instruction& instruction) const {
        Site result;
        result.kind = kind;
        result.range = match_->range;
        result.function = index_;
        result.file_offset = surroundings_.file.file_offset(instruction.address).value();
        result.instruction = instruction;
        result.level = placement_.level;
        return result;
    }

    Site inner_site(SiteKind kind, const InnerPlace& place) const {
        Site result = site(kind, place.instruction);
        result.from_frame_pointer = place.from_frame_pointer;
        result.stack_adjust = place.stack_adjust;
        return result;
    }

    Site entry_site(SiteKind kind) const {
        const FunctionCode& code = placement_.whole->code;
        // A uretprobe takes the return address from where the stack pointer points to at its own place.
        const ProbePlace& place = placement_.uretprobe ? code.unmoved_entry : code.entry;
        Site result = site(kind, place.instruction);
        result.stack_adjust = place.stack_growth;
        result.repeats = code.entry_is_branch_target;
        return result;
    }

    void add(Site added) {
        // Functions of one range may share code behind a jump: one site ends the scopes of both.
        const bool is_new =
            surroundings_.taken.emplace(added.file_offset, added.kind, added.range, added.on_return, added.level)
                .second;
        if (is_new) plan_.sites.push_back(std::move(added));
    }

    void add_match() {
        switch (match_->role) {
            case Role::kScope:
                add_entries(placement_.instance ? SiteKind::kInlinedEntry : SiteKind::kEntry);
                add_ends();
                break;
            case Role::kBeginEntry:
                add_entries(SiteKind::kBegin);
                break;
            case Role::kEndEntry:
                add_entries(SiteKind::kEnd);
                break;
            case Role::kBeginReturn:
                add_returns(SiteKind::kBegin);
                break;
            case Role::kEndReturn:
                add_returns(SiteKind::kEnd);
                break;
        }
    }

    void add_entries(SiteKind kind) {
        if (!placement_.instance) {
            add(entry_site(kind));
            return;
        }
        for (const InlinedEntry& entry : placement_.inlined.entries) {
            Site added = inner_site(kind, entry.place);
            added.repeats = entry.repeats;
            add(std::move(added));
            if (kind == SiteKind::kInlinedEntry && entry.ends_another)
                add(inner_site(SiteKind::kInlinedEnd, entry.place));
        }
    }

    // ---- the ends of scopes

    void add_ends() {
        if (placement_.instance) {
            add_inlined_ends();
            return;
        }
        const FunctionCode& code = placement_.whole->code;
        ends_ = placement_.ends;
        note_names();
        if (placement_.uretprobe) {
            add_uretprobe(SiteKind::kReturn);
            add_jumps_away();
            return;
        }
        std::set<std::string> left_to;
        for (const ExitInstruction& exit : code.exits) add_end(exit, left_to);
        note_ends(left_to);
    }

    void add_uretprobe(SiteKind kind) {
        Site added = entry_site(kind);
        added.stack_adjust = kUretprobeStackAdjust;
        added.on_return = true;
        added.repeats = false;
        const std::vector<ExitInstruction>& exits = placement_.whole->code.exits;
        added.ended_by_callee =
            kind == SiteKind::kReturn && std::any_of(exits.begin(), exits.end(), [](const auto& exit) {
                return exit.kind == ExitInstruction::Kind::kTailJump;
            });
        add(std::move(added));
    }

    // A uretprobe waits for whatever the function jumps to. If that has probes too, it is entered in the frame of a
    // scope that must not be taken for dead.
    void add_jumps_away() {
        for (const ExitInstruction& exit : placement_.whole->code.exits) {
            if (exit.kind != ExitInstruction::Kind::kTailJump || never_returns(surroundings_.callee_of(exit))) continue;
            Site added = site(SiteKind::kTailJump, exit.instruction);
            added.condition = exit.condition;
            added.continues = true;
            add(std::move(added));
        }
    }

    void add_end(const ExitInstruction& exit, std::set<std::string>& left_to) {
        if (exit.kind == ExitInstruction::Kind::kRet) {
            add(site(SiteKind::kRet, exit.instruction));
            return;
        }
        const Callee callee = surroundings_.callee_of(exit);
        if (never_returns(callee)) return;
        Site added = site(SiteKind::kTailJump, exit.instruction);
        added.condition = exit.condition;
        added.continues = callee.probed || follow(callee);
        if (!added.continues) left_to.insert(callee.name);
        add(std::move(added));
    }

    // Most often the part of a function that throws, split off, in a file without symbols: only an exception ends the
    // scope then, as if its code had not been split.
    bool never_returns(const Callee& callee) {
        if (callee.probed || callee.group == nullptr) return false;
        const FunctionCode& code = surroundings_.reader.read(*callee.group).code;
        return code.exits.empty() && code.problem.empty() && code.unresolved_jumps.empty() && !code.runs_past_end;
    }

    // Places the ends of a function that is not probed itself but jumped to. False if they are not all known.
    bool follow(const Callee& callee) {
        if (callee.group == nullptr || !surroundings_.follows_tail_calls(match_->range)) return false;
        std::vector<Site> ends;
        std::set<std::uint64_t> seen = {placement_.group.address};
        if (!find_callee_ends(callee, 0, seen, ends)) return false;
        for (Site& end : ends) add(std::move(end));
        return true;
    }

    bool find_callee_ends(const Callee& callee, unsigned depth, std::set<std::uint64_t>& seen,
                          std::vector<Site>& ends) {
        if (!seen.insert(callee.group->address).second) return true;
        const FunctionCode& code = surroundings_.reader.read(*callee.group).code;
        if (depth >= kMostFollowed || !code.problem.empty() || !code.unresolved_jumps.empty() || code.runs_past_end)
            return false;
        for (const ExitInstruction& exit : code.exits) {
            if (ends.size() >= kMostCalleeEnds) return false;
            Site end = site(SiteKind::kCalleeEnd, exit.instruction);
            end.condition = exit.condition;
            if (exit.kind == ExitInstruction::Kind::kTailJump) {
                const Callee next = surroundings_.callee_of(exit);
                if (next.probed) continue;
                if (next.group != nullptr && find_callee_ends(next, depth + 1, seen, ends)) continue;
            }
            ends.push_back(std::move(end));
        }
        return true;
    }

    void add_inlined_ends() {
        ends_ = "where the inlined code is left";
        for (const InlinedExit& exit : placement_.inlined.exits) {
            Site added = inner_site(SiteKind::kInlinedEnd, exit.place);
            added.by_exception = exit.kind == InlinedExit::Kind::kLanding;
            if (exit.kind == InlinedExit::Kind::kTailJump) {
                added.condition = exit.jump.condition;
                added.continues = surroundings_.callee_of(exit.jump).probed;
            }
            add(std::move(added));
        }
        if (placement_.inlined.exits.empty()) add_note(note_, "it never returns, so no end is seen");
    }

    // ---- points

    void add_returns(SiteKind kind) {
        if (placement_.uretprobe) {
            add_uretprobe(kind);
            return;
        }
        if (!placement_.instance) {
            for (const ExitInstruction& exit : placement_.whole->code.exits) {
                Site added = site(kind, exit.instruction);
                added.condition = exit.condition;
                add(std::move(added));
                if (exit.kind == ExitInstruction::Kind::kTailJump)
                    add_note(note_, "it leaves by a tail jump to " + surroundings_.callee_of(exit).name +
                                        ", which is taken for its return");
            }
            return;
        }
        bool is_shared = false;
        for (const InlinedExit& exit : placement_.inlined.exits) {
            if (exit.kind == InlinedExit::Kind::kLanding) continue;
            Site added = inner_site(kind, exit.place);
            added.condition = exit.jump.condition;
            is_shared |= exit.is_shared;
            add(std::move(added));
        }
        if (is_shared) add_note(note_, "other code leads to where it is left, and is taken for its return");
    }

    // ---- notes

    void note_names() {
        std::set<std::string> other_names;
        for (const std::string& symbol : placement_.other_symbols) other_names.insert(demangle(symbol));
        other_names.erase(placement_.name);
        if (!other_names.empty())
            add_note(note_, fmt::format("its code is also that of {}{}", *other_names.begin(),
                                        other_names.size() == 1 ? "" : " and others"));
        if (placement_.whole->size_is_guess)
            add_note(note_, "nothing says how long it is; its end was looked for in its code");
        if (placement_.whole->cold_part_is_ambiguous)
            add_note(note_, "several functions share its name; ends in its handlers of exceptions may be missed");
        if (placement_.whole->code.entry_is_branch_target)
            add_note(note_, "a loop goes back to its first instruction; its turns are no calls");
    }

    void note_ends(const std::set<std::string>& left_to) {
        const FunctionCode& code = placement_.whole->code;
        if (code.exits.empty() && !code.runs_past_end) add_note(note_, "it never returns, so no end is seen");
        if (!code.exits.empty() && code.runs_past_end)
            add_note(note_, "it may run on into the code that follows, where no end is seen");
        if (!code.unresolved_jumps.empty())
            add_note(note_, fmt::format("it may end unseen at {} of its jumps, the first at {:#x} ({})",
                                        code.unresolved_jumps.size(), code.unresolved_jumps.front().address,
                                        code.unresolved_jumps.front().text));
        std::size_t named = 0;
        for (const std::string& name : left_to) {
            if (++named > kMaxNamesInNote) break;
            add_note(note_, "it ends at its tail jump to " + name);
        }
        if (left_to.size() > kMaxNamesInNote)
            add_note(note_, fmt::format("and at those to {} others", left_to.size() - kMaxNamesInNote));
    }

    const Placement& placement_;
    Surroundings& surroundings_;
    FilePlan& plan_;
    const SymbolMatch* match_ = nullptr;
    std::uint32_t index_ = 0;
    std::string note_, ends_;
};

}  // namespace

const SymbolMatch* Placement::scope() const {
    const auto found = std::find_if(matches.begin(), matches.end(),
                                    [](const SymbolMatch& match) { return match.role == Role::kScope; });
    return found == matches.end() ? nullptr : &*found;
}

void add_note(std::string& notes, const std::string& note) {
    if (note.empty()) return;
    if (!notes.empty()) notes += "; ";
    notes += note;
}

void add_sites(const Placement& placement, Surroundings& surroundings, FilePlan& plan) {
    SiteWriter(placement, surroundings, plan).run();
}

}  // namespace hostrange
