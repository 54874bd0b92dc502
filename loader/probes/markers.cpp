// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/markers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "loader/probes/elf_file.h"

namespace hostrange {
namespace {

constexpr std::string_view kProvider = "hostrange";

struct KnownMarker {
    std::string_view name, arguments;
};

// By MarkerKind.
constexpr std::array<KnownMarker, 12> kMarkers = {{
    {"session_begin", "8@%rdi"},
    {"session_end", ""},
    {"case_begin", "8@%rdi 8@%rsi 8@%rdx 8@%rcx"},
    {"case_end", "8@%rdi"},
    {"phase_begin", "8@%rdi"},
    {"phase_end", "8@%rdi"},
    {"range_begin", "8@%rdi 8@%rsi"},
    {"range_end", "8@%rdi 8@%rsi"},
    {"measurement", "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8"},
    {"pause", ""},
    {"resume", ""},
    {"probed", ""},
}};

// nop, the five-byte nop, the ten-byte nop, ret: nothing else runs in such a function, so nothing lies below its stack
// pointer that a call in place of one of them could overwrite.
constexpr std::array<std::uint8_t, 17> kSiteCode = {0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x66, 0x2e, 0x0f,
                                                    0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc3};
constexpr std::uint64_t kNop5At = 1, kNop10At = 6, kNop5Bytes = 5, kNop10Bytes = 10;
constexpr std::uint64_t kPageBytes = 4096;

bool is_on_one_page(std::uint64_t address, std::uint64_t size) {
    return address % kPageBytes + size <= kPageBytes;
}

// The distance from the site to the instruction that is probed.
std::uint64_t best_place(const ElfFile& file, std::uint64_t address, const KernelNops& kernel) {
    const std::vector<std::uint8_t> code = file.code(address, kSiteCode.size());
    if (!std::equal(code.begin(), code.end(), kSiteCode.begin(), kSiteCode.end())) return 0;
    if (kernel.optimises_nop5 && is_on_one_page(address + kNop5At, kNop5Bytes)) return kNop5At;
    if (kernel.optimises_nop10 && is_on_one_page(address + kNop10At, kNop10Bytes)) return kNop10At;
    return 0;
}

}  // namespace

std::string_view marker_name(MarkerKind kind) {
    return kMarkers[static_cast<std::size_t>(kind)].name;
}

MarkerPlan plan_markers(const ElfFile& file, const KernelNops& kernel) {
    MarkerPlan plan;
    for (const UsdtNote& note : file.usdt_notes()) {
        if (note.provider != kProvider) continue;
        const auto known = std::find_if(kMarkers.begin(), kMarkers.end(),
                                        [&](const KnownMarker& marker) { return marker.name == note.name; });
        const auto leave_out = [&](const std::string& why) {
            plan.warnings.push_back("marker " + note.name + " is left out: " + why);
        };
        if (known == kMarkers.end()) {
            leave_out("this version does not know it");
            continue;
        }
        if (note.arguments != known->arguments) {
            leave_out("its arguments are \"" + note.arguments + "\" and not \"" + std::string(known->arguments) + "\"");
            continue;
        }
        const std::uint64_t distance = best_place(file, note.address, kernel);
        const std::uint64_t address = note.address + distance;
        constexpr std::uint64_t kLongestInstruction = 15;
        std::vector<std::uint8_t> code = file.code(address, kLongestInstruction);
        if (code.empty()) code = file.code(address, 1);
        const auto instruction = DecodedInstruction::decode(code, address);
        const std::optional<std::uint64_t> offset = file.file_offset(address);
        // The ten-byte no-op is refused elsewhere, as kernels that do not patch it never fire there.
        const bool is_refused = instruction && distance != kNop10At && !instruction->refusal().empty();
        if (!instruction || !offset || is_refused) {
            leave_out("there is no instruction at its site that can be probed");
            continue;
        }
        const std::optional<std::uint64_t> semaphore =
            note.semaphore ? file.data_offset(note.semaphore) : std::optional<std::uint64_t>(0);
        if (!semaphore) {
            leave_out("its semaphore lies outside of the file");
            continue;
        }
        MarkerSite site{static_cast<MarkerKind>(known - kMarkers.begin()), *offset, *semaphore,
                        instruction->describe(distance == kNop5At, kernel)};
        if (distance == kNop10At) site.instruction.instruction_class = InstructionClass::kOptimisedNop;
        plan.sites.push_back(std::move(site));
    }
    return plan;
}

MarkerPlan plan_markers(const MappedFile& file, const KernelNops& kernel) {
    std::string error;
    const std::unique_ptr<ElfFile> elf = ElfFile::open(file.open_path, error);
    return elf ? plan_markers(*elf, kernel) : MarkerPlan{};
}

}  // namespace hostrange
