// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/frame_table.h"

#include <dwarf.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace hostrange {

namespace {

constexpr std::uint64_t kMaxTableBytes = 256u << 20;
constexpr std::uint64_t kMaxSectionBytes = 16u << 20;  // of .eh_frame without a table
constexpr std::uint64_t kMaxEntryBytes = 64u << 10;    // of one CIE or FDE
constexpr std::uint64_t kMaxHandlerBytes = 1u << 20;
constexpr std::size_t kMaxRememberedStates = 64;
constexpr unsigned kFramePointer = 6, kStackPointer = 7;  // DWARF numbers of rbp and rsp
constexpr std::uint64_t kMaxFrameBytes = INT32_MAX;

// Reads numbers one after the other; after the end it gives zeros and says so.
class Bytes {
public:
    Bytes(std::vector<std::uint8_t> bytes, std::uint64_t address) : bytes_(std::move(bytes)), address_(address) {}

    bool failed() const { return failed_; }
    bool at_end() const { return at_ >= bytes_.size(); }
    std::uint64_t address() const { return address_ + at_; }
    void limit(std::uint64_t size) { bytes_.resize(std::min<std::uint64_t>(bytes_.size(), size)); }
    void skip(std::uint64_t size) {
        if (size > bytes_.size() - at_) fail();
        if (!failed_) at_ += size;
    }

    template <typename Number>
    Number number() {
        Number value{};
        if (sizeof value > bytes_.size() - at_) {
            fail();
            return value;
        }
        std::memcpy(&value, bytes_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }

    std::uint64_t uleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if ((byte & 0x80) == 0 || failed_) return value;
        }
    }

    std::int64_t sleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;;) {
            const auto byte = number<std::uint8_t>();
            if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            shift += 7;
            if ((byte & 0x80) != 0 && !failed_) continue;
            if ((byte & 0x40) != 0 && shift < 64) value |= ~std::uint64_t{0} << shift;
            return static_cast<std::int64_t>(value);
        }
    }

    std::string text() {
        std::string result;
        for (char letter = number<char>(); letter != 0; letter = number<char>()) result += letter;
        return result;
    }

    // A pointer as exception tables encode it; `base` is that of DW_EH_PE_datarel.
    std::uint64_t pointer(std::uint8_t encoding, std::uint64_t base = 0) {
        const std::uint64_t here = address();
        std::uint64_t value = 0;
        switch (encoding & 0x0f) {
            case DW_EH_PE_absptr:
            case DW_EH_PE_udata8:
            case DW_EH_PE_sdata8:
                value = number<std::uint64_t>();
                break;
            case DW_EH_PE_uleb128:
                value = uleb();
                break;
            case DW_EH_PE_sleb128:
                value = static_cast<std::uint64_t>(sleb());
                break;
            case DW_EH_PE_udata2:
                value = number<std::uint16_t>();
                break;
            case DW_EH_PE_udata4:
                value = number<std::uint32_t>();
                break;
            case DW_EH_PE_sdata2:
                value = static_cast<std::uint64_t>(std::int64_t{number<std::int16_t>()});
                break;
            case DW_EH_PE_sdata4:
                value = static_cast<std::uint64_t>(std::int64_t{number<std::int32_t>()});
                break;
            default:
                fail();
        }
        if (value == 0) return 0;
        switch (encoding & 0x70) {
            case DW_EH_PE_absptr:
                return value;
            case DW_EH_PE_pcrel:
                return here + value;
            case DW_EH_PE_datarel:
                return base + value;
            default:
                fail();
                return 0;
        }
    }

private:
    void fail() {
        failed_ = true;
        at_ = bytes_.size();
    }

    std::vector<std::uint8_t> bytes_;
    std::uint64_t address_;
    std::size_t at_ = 0;
    bool failed_ = false;
};

struct CommonInformation {
    std::uint64_t code_alignment = 1;
    std::int64_t data_alignment = 1;
    std::uint8_t pointer_encoding = DW_EH_PE_absptr;
    std::uint8_t handlers_encoding = DW_EH_PE_omit;
    bool has_augmentation = false;
    std::optional<Bytes> instructions;
};

// The body of a CIE or FDE, after its length.
std::optional<Bytes> read_entry(const ElfFile& file, std::uint64_t address) {
    Bytes length(file.bytes(address, sizeof(std::uint32_t)), address);
    const auto size = length.number<std::uint32_t>();
    if (length.failed() || size == 0 || size > kMaxEntryBytes) return std::nullopt;
    return Bytes(file.bytes(length.address(), size), length.address());
}

std::optional<CommonInformation> read_common(const ElfFile& file, std::uint64_t address) {
    std::optional<Bytes> entry = read_entry(file, address);
    if (!entry || entry->number<std::uint32_t>() != 0) return std::nullopt;
    const auto version = entry->number<std::uint8_t>();
    if (version != 1 && version != 3) return std::nullopt;
    const std::string augmentation = entry->text();
    CommonInformation common;
    common.code_alignment = entry->uleb();
    common.data_alignment = entry->sleb();
    if (version == 1)
        entry->number<std::uint8_t>();
    else
        entry->uleb();
    if (!augmentation.empty() && augmentation[0] != 'z') return std::nullopt;
    if (!augmentation.empty()) {
        common.has_augmentation = true;
        const std::uint64_t size = entry->uleb();
        const std::uint64_t end = entry->address() + size;
        for (const char letter : augmentation.substr(1)) {
            if (letter == 'R') common.pointer_encoding = entry->number<std::uint8_t>();
            if (letter == 'L') common.handlers_encoding = entry->number<std::uint8_t>();
            if (letter == 'P') entry->pointer(entry->number<std::uint8_t>() & ~DW_EH_PE_indirect);
            // 'S' (signal frame) and 'B' have no bytes of their own; what else there is cannot be read on.
        }
        if (entry->address() > end) return std::nullopt;
        entry->skip(end - entry->address());
    }
    if (entry->failed()) return std::nullopt;
    common.instructions = *entry;
    return common;
}

// A frame description up to its instructions.
struct Description {
    CallFrame frame;
    CommonInformation common;
    Bytes instructions;
};

std::optional<Description> read_description(const ElfFile& file, std::uint64_t address) {
    std::optional<Bytes> entry = read_entry(file, address);
    if (!entry) return std::nullopt;
    const std::uint64_t here = entry->address();
    const auto distance = entry->number<std::uint32_t>();
    if (distance == 0 || distance > here) return std::nullopt;
    std::optional<CommonInformation> common = read_common(file, here - distance);
    if (!common) return std::nullopt;
    CallFrame frame;
    frame.description = address;
    frame.begin = entry->pointer(common->pointer_encoding);
    const std::uint64_t size = entry->pointer(common->pointer_encoding & 0x0f);
    frame.end = frame.begin + size;
    if (common->has_augmentation) {
        const std::uint64_t bytes = entry->uleb();
        const std::uint64_t end = entry->address() + bytes;
        if (common->handlers_encoding != DW_EH_PE_omit) frame.handlers = entry->pointer(common->handlers_encoding);
        if (entry->address() > end) return std::nullopt;
        entry->skip(end - entry->address());
    }
    if (entry->failed() || frame.end <= frame.begin) return std::nullopt;
    return Description{frame, *common, *entry};
}

// Runs call frame instructions up to a place in the code, as far as they say where the frame address is.
class FrameProgram {
public:
    FrameProgram(const CommonInformation& common, std::uint64_t begin, std::uint64_t wanted)
        : common_(common), place_(begin), wanted_(wanted) {}

    // False if they cannot be understood.
    bool run(Bytes instructions) {
        while (!instructions.at_end() && place_ <= wanted_) {
            if (!step(instructions) || instructions.failed()) return false;
        }
        return true;
    }

    std::optional<FrameAddress> result() const {
        if (is_expression_ || (register_ != kStackPointer && register_ != kFramePointer)) return std::nullopt;
        if (offset_ < 0 || offset_ > static_cast<std::int64_t>(kMaxFrameBytes)) return std::nullopt;
        return FrameAddress{register_ == kFramePointer, static_cast<std::int32_t>(offset_)};
    }

private:
    struct Rule {
        std::uint64_t number;
        std::int64_t offset;
        bool is_expression;
    };

    bool advance(std::uint64_t steps) {
        place_ += steps * common_.code_alignment;
        return true;
    }

    bool step(Bytes& instructions) {
        const auto opcode = instructions.number<std::uint8_t>();
        switch (opcode & 0xc0) {
            case DW_CFA_advance_loc:
                return advance(opcode & 0x3f);
            case DW_CFA_offset:
                instructions.uleb();
                return true;
            case DW_CFA_restore:
                return true;
            default:
                return extended(opcode, instructions);
        }
    }

    bool extended(std::uint8_t opcode, Bytes& instructions) {
        switch (opcode) {
            case DW_CFA_nop:
                return true;
            case DW_CFA_set_loc:
                place_ = instructions.pointer(common_.pointer_encoding);
                return true;
            case DW_CFA_advance_loc1:
                return advance(instructions.number<std::uint8_t>());
            case DW_CFA_advance_loc2:
                return advance(instructions.number<std::uint16_t>());
            case DW_CFA_advance_loc4:
                return advance(instructions.number<std::uint32_t>());
            case DW_CFA_def_cfa:
                register_ = instructions.uleb();
                offset_ = static_cast<std::int64_t>(instructions.uleb());
                is_expression_ = false;
                return true;
            case DW_CFA_def_cfa_sf:
                register_ = instructions.uleb();
                offset_ = instructions.sleb() * common_.data_alignment;
                is_expression_ = false;
                return true;
            case DW_CFA_def_cfa_register:
                register_ = instructions.uleb();
                return true;
            case DW_CFA_def_cfa_offset:
                offset_ = static_cast<std::int64_t>(instructions.uleb());
                return true;
            case DW_CFA_def_cfa_offset_sf:
                offset_ = instructions.sleb() * common_.data_alignment;
                return true;
            case DW_CFA_def_cfa_expression:
                is_expression_ = true;
                instructions.skip(instructions.uleb());
                return true;
            case DW_CFA_expression:
            case DW_CFA_val_expression:
                instructions.uleb();
                instructions.skip(instructions.uleb());
                return true;
            case DW_CFA_undefined:
            case DW_CFA_same_value:
            case DW_CFA_restore_extended:
            case DW_CFA_GNU_args_size:
                instructions.uleb();
                return true;
            case DW_CFA_offset_extended:
            case DW_CFA_register:
            case DW_CFA_val_offset:
            case DW_CFA_GNU_negative_offset_extended:
                instructions.uleb();
                instructions.uleb();
                return true;
            case DW_CFA_offset_extended_sf:
            case DW_CFA_val_offset_sf:
                instructions.uleb();
                instructions.sleb();
                return true;
            case DW_CFA_remember_state:
                if (remembered_.size() >= kMaxRememberedStates) return false;
                remembered_.push_back({register_, offset_, is_expression_});
                return true;
            case DW_CFA_restore_state:
                if (remembered_.empty()) return false;
                register_ = remembered_.back().number;
                offset_ = remembered_.back().offset;
                is_expression_ = remembered_.back().is_expression;
                remembered_.pop_back();
                return true;
            default:
                return false;
        }
    }

    const CommonInformation& common_;
    std::uint64_t place_, wanted_;
    std::uint64_t register_ = 0;
    std::int64_t offset_ = -1;
    bool is_expression_ = false;
    std::vector<Rule> remembered_;
};

}  // namespace

FrameTable::FrameTable(const ElfFile& file) : file_(file) {
    if (const std::optional<std::uint64_t> header = file.frame_table_address())
        read_table(*header);
    else if (const auto section = file.frame_section())
        read_section(section->first, section->second);
    const auto by_begin = [](const Entry& a, const Entry& b) { return a.begin < b.begin; };
    if (!std::is_sorted(entries_.begin(), entries_.end(), by_begin))
        std::sort(entries_.begin(), entries_.end(), by_begin);
}

void FrameTable::read_table(std::uint64_t header) {
    constexpr std::uint64_t kMaxHeaderBytes = 32;
    Bytes start(file_.bytes(header, kMaxHeaderBytes), header);
    const auto version = start.number<std::uint8_t>();
    const auto frames_encoding = start.number<std::uint8_t>();
    const auto count_encoding = start.number<std::uint8_t>();
    const auto table_encoding = start.number<std::uint8_t>();
    start.pointer(frames_encoding, header);
    const std::uint64_t count = start.pointer(count_encoding, header);
    // All linkers write this one encoding; the unwinder itself searches no other.
    if (start.failed() || version != 1 || table_encoding != (DW_EH_PE_datarel | DW_EH_PE_sdata4)) return;
    if (count > kMaxTableBytes / 8) return;
    Bytes table(file_.bytes(start.address(), count * 8), start.address());
    entries_.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t begin = header + static_cast<std::uint64_t>(std::int64_t{table.number<std::int32_t>()});
        const std::uint64_t place = header + static_cast<std::uint64_t>(std::int64_t{table.number<std::int32_t>()});
        if (table.failed()) break;
        entries_.push_back({begin, place});
    }
}

// One entry after the other. One of length 0 ends what an object file had, and others follow.
void FrameTable::read_section(std::uint64_t begin, std::uint64_t size) {
    if (size > kMaxSectionBytes || begin + size < begin) return;
    std::uint64_t left = size;
    while (left >= sizeof(std::uint32_t)) {
        const std::uint64_t address = begin + (size - left);
        const auto length = Bytes(file_.bytes(address, sizeof(std::uint32_t)), address).number<std::uint32_t>();
        const std::uint64_t whole = sizeof(std::uint32_t) + std::uint64_t{length};
        if (whole > left) return;
        left -= whole;
        if (length == 0) continue;
        if (const std::optional<Description> description = read_description(file_, address))
            entries_.push_back({description->frame.begin, address});
    }
}

std::optional<CallFrame> FrameTable::at(std::uint64_t address) const {
    auto after = std::upper_bound(entries_.begin(), entries_.end(), address,
                                  [](std::uint64_t wanted, const Entry& entry) { return wanted < entry.begin; });
    if (after == entries_.begin()) return std::nullopt;
    const Entry& entry = *std::prev(after);
    const std::optional<Description> description = read_description(file_, entry.description);
    if (!description || description->frame.begin != entry.begin) return std::nullopt;
    if (address >= description->frame.end) return std::nullopt;
    // Code that is not in the file is none.
    const std::optional<std::uint64_t> end = file_.segment_end(entry.begin);
    if (!end || description->frame.end > *end) return std::nullopt;
    return description->frame;
}

std::vector<LandingPad> FrameTable::landing_pads(const CallFrame& frame) const {
    std::vector<LandingPad> pads;
    if (frame.handlers == 0) return pads;
    Bytes table(file_.bytes(frame.handlers, kMaxHandlerBytes), frame.handlers);
    const auto start_encoding = table.number<std::uint8_t>();
    const std::uint64_t start = start_encoding == DW_EH_PE_omit ? frame.begin : table.pointer(start_encoding);
    if (table.number<std::uint8_t>() != DW_EH_PE_omit) table.uleb();
    const auto encoding = table.number<std::uint8_t>();
    const std::uint64_t size = table.uleb();
    const std::uint64_t end = table.address() + size;
    while (table.address() < end && !table.failed()) {
        const std::uint64_t begin = frame.begin + table.pointer(encoding & 0x0f);
        const std::uint64_t length = table.pointer(encoding & 0x0f);
        const std::uint64_t pad = table.pointer(encoding & 0x0f);
        table.uleb();
        if (pad != 0 && !table.failed()) pads.push_back({begin, begin + length, start + pad});
    }
    return pads;
}

std::optional<FrameAddress> FrameTable::frame_address(const CallFrame& frame, std::uint64_t address) const {
    const std::optional<Description> description = read_description(file_, frame.description);
    if (!description || address < frame.begin || address >= frame.end) return std::nullopt;
    FrameProgram program(description->common, frame.begin, address);
    if (!program.run(*description->common.instructions) || !program.run(description->instructions)) return std::nullopt;
    return program.result();
}

}  // namespace hostrange
