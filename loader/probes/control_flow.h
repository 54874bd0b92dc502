// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loader/probes/elf_file.h"
#include "loader/probes/instruction.h"

namespace hostrange {

// A range of addresses that belongs to a function: its body, or an out-of-line part (.cold).
struct CodePart {
    std::uint64_t address;
    std::uint64_t size;
    bool size_is_limit = false;  // nobody says how long it is: it ends where its code does, here at the latest
};

// One instruction and where it leads.
struct FlowInstruction {
    enum class Kind : std::uint8_t { kPlain, kCall, kRet, kJump, kConditionalJump, kIndirectJump, kStop };
    enum class Indirect : std::uint8_t { kInside, kLeaves, kUnknown };

    std::uint64_t address;
    std::uint8_t size;
    Kind kind;
    Indirect indirect = Indirect::kUnknown;  // of an indirect jump
    std::uint64_t target = 0;                // of a direct or conditional jump

    std::uint64_t end() const { return address + size; }
    bool goes_on() const { return kind == Kind::kPlain || kind == Kind::kCall || kind == Kind::kConditionalJump; }
};

// The instructions of a function. They are found by following the code from the entry and from where exceptions land;
// what that does not reach (targets of jump tables) is then decoded in a row. Tables of code addresses are recognised
// by the code that reads them, as gcc and clang write it; their targets are taken to be inside the function. Data that
// no code leads to is left alone.
class ControlFlow {
public:
    // parts[0] is the body and begins with the entry. Landing pads outside of the parts are left out.
    static ControlFlow decode(const ElfFile& file, const std::vector<CodePart>& parts,
                              const std::vector<std::uint64_t>& landing_pads);

    // Not empty: the code cannot be understood, and why. Then nothing else is of use.
    const std::string& problem() const { return problem_; }

    std::uint64_t entry() const { return parts_.front().address; }
    const std::vector<FlowInstruction>& instructions() const { return instructions_; }  // by address
    const FlowInstruction* at(std::uint64_t address) const;  // nullptr: no instruction begins there
    DecodedInstruction decoded(const FlowInstruction& instruction) const;
    bool contains(std::uint64_t address) const;  // inside of the parts

    // Some jump of the function, a table or an exception leads there. Where a jump table is used, any instruction after
    // one that does not go on may be its target.
    bool is_branch_target(std::uint64_t address) const;

    bool runs_past_end() const { return runs_past_end_; }  // some instruction goes on into code behind the parts

private:
    friend class FlowDecoder;
    struct Part {
        std::uint64_t address = 0;
        std::vector<std::uint8_t> bytes;
        std::vector<std::uint8_t> marks;  // by byte, while decoding

        bool contains(std::uint64_t target) const { return target >= address && target - address < bytes.size(); }
    };

    const Part* part_of(std::uint64_t address) const;

    std::vector<Part> parts_;
    std::vector<FlowInstruction> instructions_;
    std::set<std::uint64_t> branch_targets_;
    bool runs_past_end_ = false;
    std::string problem_;
};

}  // namespace hostrange
