// SPDX-License-Identifier: Apache-2.0
#include "loader/probes/debug_info.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "loader/probes/dwarf_names.h"
#include "loader/probes/elf_file.h"
#include "loader/probes/line_table.h"

namespace hostrange {

namespace {

constexpr std::uint64_t kMaxSectionBytes = 2ull << 30;  // of all debug sections, when they are unpacked
constexpr std::uint64_t kMaxEntries = 200'000'000;      // DIEs looked at
constexpr std::size_t kMaxDepth = 512;                  // of the tree of DIEs; compilers stay below 100
constexpr std::size_t kMaxRanges = 4096;                // of one inlined call
constexpr std::size_t kMaxInstances = 1'000'000;

struct EndDwarf {
    void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
};
struct EndElf {
    void operator()(Elf* elf) const { elf_end(elf); }
};

class Descriptor {
public:
    explicit Descriptor(const std::string& path) : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~Descriptor() {
        if (number_ >= 0) close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int number() const { return number_; }

private:
    int number_;
};

// What a debug section says it unpacks to; its own size if it is not compressed. A bomb of a few kilobytes can claim
// terabytes, and libdw would believe it.
std::uint64_t unpacked_size(Elf_Scn* section, const GElf_Shdr& header, std::string_view name) {
    if ((header.sh_flags & SHF_COMPRESSED) != 0) {
        GElf_Chdr compressed;
        return gelf_getchdr(section, &compressed) != nullptr ? compressed.ch_size : UINT64_MAX;
    }
    if (name.starts_with(".zdebug")) {
        // "ZLIB", then the size in eight bytes, the highest first.
        const Elf_Data* data = elf_rawdata(section, nullptr);
        if (data == nullptr || data->d_buf == nullptr || data->d_size < 12) return UINT64_MAX;
        std::uint64_t size = 0;
        for (int i = 4; i < 12; ++i) size = size << 8 | static_cast<const std::uint8_t*>(data->d_buf)[i];
        return size;
    }
    return header.sh_size;
}

// Empty if the debug sections may be handed to libdw.
std::string refusal(Elf* elf, bool& has_debug_info) {
    std::size_t names = 0;
    if (elf_getshdrstrndx(elf, &names) != 0) return "";
    std::uint64_t total = 0;
    Elf_Scn* section = nullptr;
    while ((section = elf_nextscn(elf, section)) != nullptr) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
        const char* text = elf_strptr(elf, names, header.sh_name);
        const std::string_view name = text != nullptr ? text : "";
        if (!name.starts_with(".debug_") && !name.starts_with(".zdebug_")) continue;
        if (name.ends_with("debug_info")) has_debug_info = true;
        const std::uint64_t size = unpacked_size(section, header, name);
        if (size > kMaxSectionBytes || total + size > kMaxSectionBytes)
            return fmt::format("it is larger than {} GiB when unpacked", kMaxSectionBytes >> 30);
        total += size;
    }
    return "";
}

// An inlined function, as far as it has been asked for.
struct Origin {
    bool wanted = false;
    std::string symbol, name;
};

class InlinedFinder {
public:
    // `folder`: of the file.
    InlinedFinder(const std::function<bool(const std::string&, const std::string&)>& wanted, const std::string& folder,
                  InlinedInstances& result)
        : is_wanted_(wanted), folder_(folder), result_(result) {}

    void run(Dwarf* dwarf) {
        Dwarf_CU* unit = nullptr;
        std::uint8_t unit_type = 0;
        Dwarf_Half version = 0;
        Dwarf_Die root;
        int status;
        while ((status = dwarf_get_units(dwarf, unit, &unit, &version, &unit_type, &root, nullptr)) == 0) {
            if (unit_type == DW_UT_type || unit_type == DW_UT_split_type) continue;
            unit_ = root;
            if (unit_type == DW_UT_skeleton)
                walk_split(unit, root);
            else
                walk(root);
            find_beginnings();
            if (is_full_) return;
        }
        if (status < 0) note(std::string("it is damaged: ") + dwarf_errmsg(-1));
    }

private:
    static constexpr std::size_t kNone = SIZE_MAX;

    using Declaration = std::pair<std::string, int>;  // file, line

    // What is known of an instance besides.
    struct Wanted {
        std::size_t around;  // the instance that it lies in; kNone if there is none
        std::optional<Declaration> declaration;
        bool has_known_statements;                 // line tables may be asked where its statements begin
        std::vector<AddressRange> inner;           // see note_inner()
        std::vector<std::uint64_t> other_entries;  // see note_entry()
    };

    // What a DIE inherits from those around it.
    struct Place {
        Dwarf_Die die;
        std::optional<std::uint64_t> container;
        unsigned depth;
        std::size_t instance;  // the innermost wanted inlined call around it; kNone if there is none
    };

    void note(const std::string& problem) {
        if (result_.problem.empty()) result_.problem = problem;
    }

    // The file with the rest of the unit: where the unit says, or beside this file.
    void walk_split(Dwarf_CU* unit, Dwarf_Die& skeleton) {
        const char* name = nullptr;
        for (const unsigned code : {DW_AT_dwo_name, DW_AT_GNU_dwo_name})
            if (name == nullptr) name = strings_.text(&skeleton, code);
        const char* folder = strings_.text(&skeleton, DW_AT_comp_dir);
        const std::string path = name == nullptr ? "" : std::string(name);
        for (const std::string& candidate :
             {path, folder_ + "/" + path, (folder ? std::string(folder) : "") + "/" + path}) {
            // libdw opens what is there, and would wait for the other end of a pipe.
            struct stat status;
            if (!path.empty() && stat(candidate.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
                note(candidate + " is no regular file");
                return;
            }
        }
        Dwarf_Die root;
        std::memset(&root, 0, sizeof root);
        if (dwarf_cu_info(unit, nullptr, nullptr, nullptr, &root, nullptr, nullptr, nullptr) == 0 &&
            root.addr != nullptr)
            walk(root);
        else
            note(fmt::format("the split part {} was not found", path.empty() ? "of a unit" : path));
    }

    // Depth first, without recursion. path_ holds the DIEs from the root to the one at hand.
    void walk(const Dwarf_Die& root) {
        root_ = root;
        path_ = {{root, std::nullopt, 0, kNone}};
        bool descend = true;
        while (!path_.empty()) {
            if (++entries_ > kMaxEntries) {
                note(fmt::format("it has more than {} entries", kMaxEntries));
                is_full_ = true;
                return;
            }
            Dwarf_Die next;
            if (descend && dwarf_haschildren(&path_.back().die) > 0 && has_code_below(path_.back().die)) {
                if (path_.size() >= kMaxDepth)
                    note(fmt::format("it is nested deeper than {}", kMaxDepth));
                else if (dwarf_child(&path_.back().die, &next) == 0) {
                    path_.push_back(look_at(next, path_.back()));
                    if (is_full_) return;
                    continue;
                }
            }
            if (path_.size() == 1) return;
            if (dwarf_siblingof(&path_.back().die, &next) == 0) {
                path_.pop_back();
                path_.push_back(look_at(next, path_.back()));
                descend = true;
                if (is_full_) return;
            } else {
                path_.pop_back();
                descend = false;
            }
        }
    }

    // Types have no code in them: member functions are only declared there.
    static bool has_code_below(Dwarf_Die& die) {
        switch (dwarf_tag(&die)) {
            case DW_TAG_structure_type:
            case DW_TAG_class_type:
            case DW_TAG_union_type:
            case DW_TAG_enumeration_type:
            case DW_TAG_array_type:
            case DW_TAG_subroutine_type:
            case DW_TAG_call_site:
            case DW_TAG_GNU_call_site:
                return false;
            default:
                return true;
        }
    }

    Place look_at(Dwarf_Die& die, const Place& around) {
        Place place{die, around.container, around.depth, around.instance};
        const int tag = dwarf_tag(&die);
        if (tag == DW_TAG_subprogram) {
            const std::vector<AddressRange> ranges = ranges_of(die);
            place.depth = 0;
            place.container = std::nullopt;
            place.instance = kNone;
            // The part with the entry comes first, whatever its address.
            if (!ranges.empty()) place.container = entry_of(die, ranges);
        } else if (tag == DW_TAG_inlined_subroutine) {
            note_inner(die, place);
            if (place.container) add(die, place);
            ++place.depth;
        }
        return place;
    }

    static std::vector<AddressRange> ranges_of(Dwarf_Die& die) {
        std::vector<AddressRange> ranges;
        if (dwarf_hasattr(&die, DW_AT_ranges) == 0 && dwarf_hasattr(&die, DW_AT_low_pc) == 0) return ranges;
        Dwarf_Addr base = 0, begin = 0, end = 0;
        ptrdiff_t offset = 0;
        while (ranges.size() < kMaxRanges && (offset = dwarf_ranges(&die, offset, &base, &begin, &end)) > 0)
            if (end > begin) ranges.push_back({begin, end});
        return ranges;
    }

    static std::uint64_t entry_of(Dwarf_Die& die, const std::vector<AddressRange>& ranges) {
        Dwarf_Addr entry = 0;
        if (dwarf_hasattr(&die, DW_AT_entry_pc) != 0 && dwarf_entrypc(&die, &entry) == 0) return entry;
        if (dwarf_hasattr(&die, DW_AT_low_pc) != 0 && dwarf_lowpc(&die, &entry) == 0) return entry;
        return ranges.front().begin;
    }

    void add(Dwarf_Die& die, Place& place) {
        Dwarf_Die origin_die;
        if (!origin_die_of(die, origin_die)) return;
        const Origin& origin = origin_of(origin_die);
        if (!origin.wanted) return;
        InlinedInstance instance{
            origin.symbol, origin.name, *place.container, ranges_of(die), 0, place.depth, false, {}, {}};
        if (!instance.ranges.empty()) instance.entry = entry_of(die, instance.ranges);
        std::sort(instance.ranges.begin(), instance.ranges.end(),
                  [](const AddressRange& one, const AddressRange& other) { return one.begin < other.begin; });
        if (result_.instances.size() >= kMaxInstances) {
            note(fmt::format("more than {} inlined calls match", kMaxInstances));
            is_full_ = true;
            return;
        }
        instance.marks_statements = marks_statements(die);
        const std::optional<Declaration> declaration = declaration_of(origin_die);
        wanted_.push_back({place.instance,
                           declaration,
                           instance.marks_statements || !is_of_gcc(),
                           {},
                           entries_around(declaration, instance.entry)});
        place.instance = result_.instances.size();
        result_.instances.push_back(std::move(instance));
    }

    // Code of an inlined call inside of wanted ones that stands at the same place of the source: of the same function,
    // or of the same template with other arguments. Its statements are not those of the calls around it.
    void note_inner(Dwarf_Die& die, const Place& place) {
        if (place.instance == kNone) return;
        Dwarf_Die origin;
        const std::optional<Declaration> own = origin_die_of(die, origin) ? declaration_of(origin) : std::nullopt;
        if (!own) return;
        const std::vector<AddressRange> ranges = ranges_of(die);
        for (std::size_t outer = place.instance; outer != kNone; outer = wanted_[outer].around) {
            if (wanted_[outer].declaration != own) continue;
            std::vector<AddressRange>& inner = wanted_[outer].inner;
            inner.insert(inner.end(), ranges.begin(), ranges.end());
            note_entry(die, ranges, result_.instances[outer].entry, wanted_[outer].other_entries);
        }
    }

    // Where another call of the same place of the source begins than the one with `own_entry`. gcc marks its first
    // statement there, though the instruction may belong to the code of the other.
    static void note_entry(Dwarf_Die& die, const std::vector<AddressRange>& ranges, std::uint64_t own_entry,
                           std::vector<std::uint64_t>& entries) {
        if (ranges.empty()) return;
        const std::uint64_t entry = entry_of(die, ranges);
        if (entry != own_entry) entries.push_back(entry);
    }

    // The same of the calls around one, up to the function that it lies in.
    std::vector<std::uint64_t> entries_around(const std::optional<Declaration>& declaration, std::uint64_t own_entry) {
        std::vector<std::uint64_t> entries;
        if (!declaration) return entries;
        for (auto place = path_.rbegin(); place != path_.rend(); ++place) {
            const bool is_function = dwarf_tag(&place->die) == DW_TAG_subprogram;
            Dwarf_Die origin;
            if (is_function ? declaration_of(place->die) == declaration
                            : dwarf_tag(&place->die) == DW_TAG_inlined_subroutine &&
                                  origin_die_of(place->die, origin) && declaration_of(origin) == declaration)
                note_entry(place->die, ranges_of(place->die), own_entry, entries);
            if (is_function) break;
        }
        return entries;
    }

    // When all instances of the unit at hand are known: what one of them does not tell, another may.
    void find_beginnings() {
        std::map<Declaration, std::vector<LineTables::Instance>> by_declaration;
        for (std::size_t i = first_of_unit_; i < result_.instances.size(); ++i)
            if (wanted_[i].declaration && wanted_[i].has_known_statements)
                by_declaration[*wanted_[i].declaration].push_back(
                    {&result_.instances[i], wanted_[i].inner, wanted_[i].other_entries});
        for (const auto& [declaration, instances] : by_declaration)
            lines_.find_beginnings(unit_, declaration.first.c_str(), declaration.second, instances);
        first_of_unit_ = result_.instances.size();
    }

    // gcc says by this attribute that it has marked where the statements of the call begin; it does not at link time
    // (-flto), with -g1, -gno-statement-frontiers and the like.
    static bool marks_statements(Dwarf_Die& die) { return dwarf_hasattr(&die, DW_AT_GNU_entry_view) != 0; }

    bool is_of_gcc() {
        const char* producer = strings_.text(&root_, DW_AT_producer);
        return producer != nullptr && std::string_view(producer).starts_with("GNU ");
    }

    // dwarf_decl_file() knows no file 0, which in DWARF 5 is the unit's own, and asserts that split units have a table.
    std::optional<Declaration> declaration_of(Dwarf_Die& function) {
        Dwarf_Attribute attribute;
        Dwarf_Word number = 0;
        int line = 0;
        if (dwarf_decl_line(&function, &line) != 0 ||
            dwarf_attr_integrate(&function, DW_AT_decl_file, &attribute) == nullptr ||
            dwarf_formudata(&attribute, &number) != 0)
            return std::nullopt;
        const char* file = number == 0 ? strings_.text(&root_, DW_AT_name) : nullptr;
        Dwarf_Die own;
        for (Dwarf_Die* unit : {dwarf_diecu(&function, &own, nullptr, nullptr), &unit_}) {
            if (number != 0 && file == nullptr && unit != nullptr) file = lines_.file_name(*unit, number);
        }
        return file == nullptr ? std::nullopt : std::optional(Declaration(file, line));
    }

    static bool origin_die_of(Dwarf_Die& die, Dwarf_Die& origin) {
        Dwarf_Attribute attribute;
        return dwarf_attr(&die, DW_AT_abstract_origin, &attribute) != nullptr &&
               dwarf_formref_die(&attribute, &origin) != nullptr;
    }

    const Origin& origin_of(Dwarf_Die& die) {
        const auto [found, is_new] = origins_.try_emplace(die.addr);
        Origin& origin = found->second;
        if (!is_new) return origin;
        // libdw follows DW_AT_specification and DW_AT_abstract_origin, at most 16 of them.
        const char* text = nullptr;
        for (const unsigned code : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})
            if (text == nullptr) text = strings_.text(&die, code);
        if (text != nullptr) {
            origin.symbol = text;
            origin.name = demangle(origin.symbol);
        } else {
            origin.name = composer_.function(die);
        }
        origin.wanted = !origin.name.empty() && is_wanted_(origin.symbol, origin.name);
        if (!origin.wanted) origin.symbol = origin.name = {};
        return origin;
    }

    const std::function<bool(const std::string&, const std::string&)>& is_wanted_;
    const std::string folder_;
    InlinedInstances& result_;
    DwarfStrings strings_;
    LineTables lines_;
    Dwarf_Die unit_;  // the one at hand; of a split one, what the file itself has of it: its line table
    Dwarf_Die root_;  // the same; of a split one, what the other file has
    NameComposer composer_{strings_};
    std::unordered_map<const void*, Origin> origins_;  // by the place of the DIE in memory
    std::vector<Place> path_;
    std::vector<Wanted> wanted_;     // for each instance
    std::size_t first_of_unit_ = 0;  // the first instance of the unit at hand
    std::uint64_t entries_ = 0;
    bool is_full_ = false;
};

}  // namespace

bool lies_in(const std::vector<AddressRange>& ranges, std::uint64_t address) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const AddressRange& range) { return address >= range.begin && address < range.end; });
}

InlinedInstances find_inlined_instances(
    const std::string& path,
    const std::function<bool(const std::string& symbol, const std::string& demangled)>& wanted) {
    InlinedInstances result;
    const Descriptor file(path);
    if (file.number() < 0) {
        result.problem = path + ": " + std::strerror(errno);
        return result;
    }
    if (!has_few_sections(file.number())) {
        result.problem = fmt::format("it has more than {} sections", kMaxSections);
        return result;
    }
    elf_version(EV_CURRENT);
    const std::unique_ptr<Elf, EndElf> elf(elf_begin(file.number(), ELF_C_READ, nullptr));
    if (!elf || elf_kind(elf.get()) != ELF_K_ELF) return result;
    result.problem = refusal(elf.get(), result.has_debug_info);
    if (!result.problem.empty() || !result.has_debug_info) return result;
    const std::unique_ptr<Dwarf, EndDwarf> dwarf(dwarf_begin_elf(elf.get(), DWARF_C_READ, nullptr));
    if (!dwarf) {
        result.problem = dwarf_errmsg(-1);
        return result;
    }
    InlinedFinder(wanted, path.substr(0, path.rfind('/') + 1) + ".", result).run(dwarf.get());
    std::stable_sort(result.instances.begin(), result.instances.end(),
                     [](const InlinedInstance& one, const InlinedInstance& other) {
                         return std::tie(one.container_address, one.depth, one.entry) <
                                std::tie(other.container_address, other.depth, other.entry);
                     });
    return result;
}

}  // namespace hostrange
