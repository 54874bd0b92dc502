// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loader/probes/elf_file.h"

namespace hostrange {

// What the unwinder knows of a piece of code: a function, or a part of one that the compiler has put elsewhere.
struct CallFrame {
    std::uint64_t begin = 0, end = 0;  // half-open
    std::uint64_t handlers = 0;        // address of the table of exception handlers (LSDA); 0: none
    std::uint64_t description = 0;     // address of the FDE
};

// Where an exception lands that crosses a call in [begin, end).
struct LandingPad {
    std::uint64_t begin, end;
    std::uint64_t address;
};

inline constexpr std::int32_t kReturnAddressBytes = 8;  // that a call pushes

// Where the canonical frame address lies: the stack pointer at the function's entry, plus kReturnAddressBytes.
struct FrameAddress {
    bool from_frame_pointer;  // rbp + offset; else rsp + offset
    std::int32_t offset;
};

// Reads .eh_frame through its sorted table (.eh_frame_hdr), which each linker makes and no stripping removes; programs
// that are linked statically have only the section. It tells where functions end whatever the symbols say, where
// exceptions land, and how far the stack has been moved at any instruction. libdw gives only the last of these.
// Formats: LSB 5.0, 10.6 (Exception Frames) and the Itanium C++ ABI's exception handling tables. Hostile input:
// whatever cannot be read is not there.
class FrameTable {
public:
    explicit FrameTable(const ElfFile& file);

    bool is_empty() const { return entries_.empty(); }

    // The frame that covers the address.
    std::optional<CallFrame> at(std::uint64_t address) const;

    // They may lie outside of the frame.
    std::vector<LandingPad> landing_pads(const CallFrame& frame) const;

    // At the instruction at this address, before it runs; nullopt if unknown or computed by an expression.
    std::optional<FrameAddress> frame_address(const CallFrame& frame, std::uint64_t address) const;

private:
    struct Entry {
        std::uint64_t begin, description;
    };
    void read_table(std::uint64_t header);
    void read_section(std::uint64_t begin, std::uint64_t size);

    const ElfFile& file_;
    std::vector<Entry> entries_;  // by begin
};

}  // namespace hostrange
