// SPDX-License-Identifier: Apache-2.0
// What a user with a slow program sees: where host time goes, the dearest operator first, ranges as they nest.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/report/report.h"
#include "loader/report/rows.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

enum Column {
    kName,
    kCount,
    kUnwound,
    kInclusiveMedian,
    kInclusiveUncertainty,
    kInclusiveMean,
    kSelfMedian,
    kSelfUncertainty,
    kSelfMean,
    kShare,
    kColumns
};
constexpr std::array<std::string_view, kColumns> kTitles = {"",     "count",  "unwound", "median", "±",
                                                            "mean", "median", "±",       "mean",   "share"};
// They have something in them only sometimes.
constexpr bool is_optional(std::size_t column) {
    return column == kUnwound || column == kInclusiveUncertainty || column == kSelfUncertainty;
}
constexpr std::string_view kInclusive = "inclusive", kSelf = "self";
constexpr std::size_t kGap = 2, kLeastBar = 8, kGreatestBar = 24, kLeastName = 16;
constexpr std::size_t kOverviewLines = 20;

// A row of numbers, as text.
struct Line {
    std::array<std::string, kColumns> cells;
    double share = 0;  // of the section's host time
};

// One phase of a block.
struct Section {
    std::vector<const ReportRow*> rows;  // in the order of the map
    std::vector<Line> lines;             // as they nest
    Wide host_ns = 0;
};

// One process, operator, backend and implementation.
struct Block {
    RowKey key;
    std::map<Phase, Section> sections;
    std::uint64_t calls = 0;
    std::uint64_t threads = 0;
    Wide host_ns = 0;
};

struct Layout {
    std::array<std::size_t, kColumns> widths{};  // 0: left out
    std::size_t bar = 0;
    std::size_t total = 0;  // without bar
};

// Rounded, with separators.
std::string whole(double value) {
    const std::string text = fmt::format("{:.0f}", value);
    return text == "-0" ? "0" : with_separators(text);
}

std::string percent(double share) {
    return std::isnan(share) ? "-" : fmt::format("{:.1f} %", share * 100);
}

double ratio(Wide part, Wide all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : std::nan("");
}

// The uncertainty of a metric; with a mark, if the probes cost so much that little can be said.
std::string uncertainty_text(const SampleView& raw, const SampleView& corrected, std::optional<double> share) {
    if (!share) return "";
    const Correction correction = correction_of(raw, corrected, *share);
    return whole(correction.uncertainty_ns) + (correction.low_confidence ? "?" : " ");
}

Line line_of(const ReportRow& row, const std::string& name, std::size_t level, Wide host_ns,
             std::optional<double> uncertain_share, bool utf8) {
    Line line;
    line.cells[kName] = std::string(2 * level, ' ') + printable(name, utf8);
    line.cells[kCount] = with_separators(row.inclusive.count());
    line.cells[kUnwound] = row.unwound == 0 ? "" : with_separators(row.unwound);
    if (row.inclusive.count() == 0) {
        for (const Column column : {kInclusiveMedian, kInclusiveMean, kSelfMedian, kSelfMean, kShare}) {
            line.cells[column] = "-";
        }
        return line;
    }
    line.cells[kInclusiveMedian] = whole(row.inclusive.median());
    line.cells[kInclusiveUncertainty] = uncertainty_text(row.raw_inclusive, row.inclusive, uncertain_share);
    line.cells[kInclusiveMean] = whole(row.inclusive.mean());
    line.cells[kSelfMedian] = whole(row.self.median());
    line.cells[kSelfUncertainty] = uncertainty_text(row.raw_self, row.self, uncertain_share);
    line.cells[kSelfMean] = whole(row.self.mean());
    line.share = ratio(row.self.sum(), host_ns);
    line.cells[kShare] = percent(line.share);
    return line;
}

// Fills the lines of a section. Only a less deep row can hold another: the scope around may belong to another
// operator's block, and then two ranges can each have been around the other.
void nest(Section& section, const std::vector<RangeTraits>& ranges, std::optional<double> uncertain_share, bool utf8) {
    std::map<std::uint32_t, std::vector<const ReportRow*>> inside;  // by enclosing range
    std::vector<const ReportRow*> outermost;
    const auto is_held = [&](const ReportRow* row) {
        return std::any_of(section.rows.begin(), section.rows.end(), [row](const ReportRow* other) {
            return other->key.range == row->enclosing_range && other->depth < row->depth;
        });
    };
    for (const ReportRow* row : section.rows) {
        // Self times of a tree add up to the inclusive time of its outermost scope, under recursion as well.
        section.host_ns += row->self.sum();
        (is_held(row) ? inside[row->enclosing_range] : outermost).push_back(row);
    }
    const auto add = [&](const auto& again, const ReportRow* row, std::size_t level) -> void {
        section.lines.push_back(
            line_of(*row, ranges[row->key.range].name, level, section.host_ns, uncertain_share, utf8));
        for (const ReportRow* child : inside[row->key.range]) again(again, child, level + 1);
    };
    for (const ReportRow* row : outermost) add(add, row, 0);
}

// The dearest first.
std::vector<Block> blocks_of(const std::vector<ReportRow>& rows, const std::vector<RangeTraits>& ranges,
                             std::optional<double> uncertain_share, bool utf8) {
    std::vector<Block> blocks;
    for (const ReportRow& row : rows) {
        RowKey key = row.key;
        key.phase = Phase::kWarm;
        key.range = 0;
        if (blocks.empty() || blocks.back().key != key) blocks.push_back({.key = key, .sections = {}});
        Block& block = blocks.back();
        block.sections[row.key.phase].rows.push_back(&row);
        block.threads = std::max(block.threads, row.threads);
        block.calls += row.calls;
    }
    for (Block& block : blocks) {
        for (auto& [phase, section] : block.sections) {
            nest(section, ranges, uncertain_share, utf8);
            block.host_ns += section.host_ns;
        }
    }
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const Block& one, const Block& other) { return one.host_ns > other.host_ns; });
    return blocks;
}

// Warm first: there most of the time goes.
std::vector<Phase> phases_of(const Block& block) {
    std::vector<Phase> phases;
    for (const auto& [phase, section] : block.sections) phases.push_back(phase);
    std::stable_partition(phases.begin(), phases.end(), [](Phase phase) { return phase == Phase::kWarm; });
    return phases;
}

void widen(Layout& layout, const Section& section) {
    for (const Line& line : section.lines) {
        for (std::size_t i = 0; i < kColumns; ++i) {
            layout.widths[i] = std::max(layout.widths[i], columns_of(line.cells[i]));
        }
    }
}

// Leaves out what does not fit. `layout` holds the widths of the cells.
Layout fitted(Layout layout, std::size_t width) {
    auto& widths = layout.widths;
    for (std::size_t i = 0; i < kColumns; ++i) {
        if (!is_optional(i) || widths[i] > 0) widths[i] = std::max(widths[i], columns_of(std::string(kTitles[i])));
    }
    const auto excess = [&] {
        // The title of a group needs as much as its only column.
        if (widths[kInclusiveMean] == 0 && widths[kInclusiveUncertainty] == 0)
            widths[kInclusiveMedian] = std::max(widths[kInclusiveMedian], kInclusive.size());
        layout.total = 2 + widths[kName];
        for (std::size_t i = kName + 1; i < kColumns; ++i) layout.total += widths[i] == 0 ? 0 : kGap + widths[i];
        return width == 0 || layout.total <= width ? 0 : layout.total - width;
    };
    for (const Column column : {kSelfMean, kInclusiveMean, kSelfUncertainty, kInclusiveUncertainty}) {
        if (excess() > 0) widths[column] = 0;
    }
    if (excess() > 0) {
        const std::size_t least = std::min(kLeastName, widths[kName]);
        widths[kName] = std::max(least, widths[kName] - std::min(widths[kName], excess()));
        excess();
    }
    const std::size_t left = width == 0 ? kGreatestBar : width - std::min<std::size_t>(width, layout.total + kGap);
    layout.bar = left < kLeastBar ? 0 : std::min(left, kGreatestBar);
    return layout;
}

std::string bar_of(double share, std::size_t width, bool utf8) {
    static constexpr std::array<std::string_view, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(share > 0)) return "";
    const double length = std::min(share, 1.0) * static_cast<double>(width);
    if (!utf8) return std::string(static_cast<std::size_t>(std::lround(length)), '#');
    const auto eighths = static_cast<std::size_t>(std::lround(length * 8));
    std::string bar;
    for (std::size_t i = 0; i < eighths / 8; ++i) bar += "█";
    return bar += kEighths[eighths % 8];
}

std::string text_line(const Layout& layout, const std::array<std::string, kColumns>& cells, std::string_view bar,
                      bool utf8) {
    std::string line = "  " + padded_right(shortened(cells[kName], layout.widths[kName], utf8), layout.widths[kName]);
    for (std::size_t i = kName + 1; i < kColumns; ++i) {
        if (layout.widths[i] == 0) continue;
        line += std::string(kGap, ' ') + padded_left(cells[i], layout.widths[i]);
    }
    if (layout.bar != 0) line += std::string(kGap, ' ') + std::string(bar);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

std::string section_text(const Section& section, std::string_view phase, const Layout& layout, bool utf8) {
    const auto width_of = [&](Column first, Column last) {
        std::size_t width = 0;
        for (std::size_t i = first; i <= last; ++i) width += layout.widths[i] == 0 ? 0 : kGap + layout.widths[i];
        return width;
    };
    std::string text = "  " + padded_right("times in ns", layout.widths[kName] + width_of(kCount, kUnwound));
    text += padded_left(kInclusive, width_of(kInclusiveMedian, kInclusiveMean));
    text += padded_left(kSelf, width_of(kSelfMedian, kShare)) + "\n";
    std::array<std::string, kColumns> titles;
    std::copy(kTitles.begin(), kTitles.end(), titles.begin());
    titles[kName] = printable(phase, utf8);
    for (const Column column : {kInclusiveUncertainty, kSelfUncertainty}) titles[column] = utf8 ? "± " : "+- ";
    text += text_line(layout, titles, "", utf8);
    for (const Line& line : section.lines) {
        text += text_line(layout, line.cells, bar_of(line.share, layout.bar, utf8), utf8);
    }
    return text;
}

std::string title_of(const Block& block, bool utf8) {
    std::string title;
    const auto add = [&](const std::string& part) {
        if (part.empty()) return;
        if (!title.empty()) title += utf8 ? " · " : " | ";
        title += printable(part, utf8);
    };
    add(block.key.operator_name);
    add(block.key.backend);
    if (!block.key.implementation.empty()) add("implementation " + block.key.implementation);
    return title.empty() ? "(no operator)" : title;
}

std::string process_text(const ProcessKey& key, const SessionSummary& session, bool utf8) {
    const auto found = session.processes.find(key);
    std::string text = fmt::format("pid {}", key.process_id);
    if (found == session.processes.end()) return text;
    if (!found->second.comm.empty()) text += fmt::format(" ({})", printable(found->second.comm, utf8));
    if (!found->second.container.empty()) {
        text += fmt::format(" in {}", printable(found->second.container.substr(0, 12), utf8));
    }
    return text;
}

// The last thing on the screen, so that a long report need not be scrolled through.
std::string overview(const std::vector<Block>& blocks, const SessionSummary& session, Wide host_ns, std::size_t width,
                     bool utf8) {
    std::array<std::size_t, 4> widths{};
    std::vector<std::array<std::string, 5>> lines = {{"host time by operator", "calls", "host time", "share", ""}};
    for (const Block& block : blocks) {
        if (lines.size() > kOverviewLines) break;
        lines.push_back({title_of(block, utf8), with_separators(block.calls),
                         scaled(static_cast<double>(block.host_ns)), percent(ratio(block.host_ns, host_ns)),
                         process_text(block.key.process, session, utf8)});
    }
    for (const auto& line : lines) {
        for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], columns_of(line[i]));
    }
    std::string text;
    for (const auto& line : lines) {
        std::string whole_line = padded_right(line[0], widths[0] + 2);
        for (std::size_t i = 1; i < widths.size(); ++i) whole_line += "  " + padded_left(line[i], widths[i]);
        if (!line[4].empty()) whole_line += "  " + line[4];
        text += (width == 0 ? whole_line : shortened(whole_line, width, utf8)) + "\n";
    }
    if (blocks.size() > kOverviewLines) text += fmt::format("and {} more\n", blocks.size() - kOverviewLines);
    return text + "\n";
}

// Of a test session, whose blocks nobody scrolls through: where most of the host time went.
std::string dearest_ranges(const std::vector<Block>& blocks, const std::vector<RangeTraits>& ranges, Wide host_ns,
                           std::size_t width, bool utf8) {
    constexpr std::size_t kShown = 5;
    struct Part {
        std::string name;
        Wide self_ns;
    };
    std::vector<Part> parts;
    std::size_t name_width = 0;
    for (const Block& block : blocks) {
        std::map<std::uint32_t, Wide> self_by_range;
        for (const auto& [phase, section] : block.sections)
            for (const ReportRow* row : section.rows) self_by_range[row->key.range] += row->self.sum();
        for (const auto& [range, self_ns] : self_by_range)
            parts.push_back({printable(ranges[range].name, utf8) + "  " + title_of(block, utf8), self_ns});
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& one, const Part& other) { return one.self_ns > other.self_ns; });
    if (parts.size() > kShown) parts.resize(kShown);
    for (const Part& part : parts) name_width = std::max(name_width, columns_of(part.name));
    std::string text = "dearest ranges, by self time\n";
    for (const Part& part : parts) {
        const std::string line = "  " + padded_right(part.name, name_width) + "  " +
                                 padded_left(scaled(static_cast<double>(part.self_ns)), 9) + "  " +
                                 padded_left(percent(ratio(part.self_ns, host_ns)), 7);
        text += (width == 0 ? line : shortened(line, width, utf8)) + "\n";
    }
    return text + "\n";
}

std::string totals_text(const Collector& collector, const SessionSummary& session, std::size_t width, bool utf8) {
    const CollectionTotals& totals = collector.totals();
    std::uint64_t lost = 0;
    std::string lost_ranges;
    for (const auto& [range, count] : session.lost_by_range) {
        if (count == 0) continue;
        lost += count;
        const std::string name = range < collector.ranges().size() ? collector.ranges()[range].name : "markers";
        lost_ranges += fmt::format("{}{} {}", lost_ranges.empty() ? "lost: " : ", ", printable(name, utf8),
                                   with_separators(count));
    }
    std::string text = fmt::format("{}, {} in {:.1f} s", counted(totals.trees, "call tree"),
                                   counted(totals.scopes, "scope"), session.duration_s);
    const std::size_t cases = collector.marks().cases().size() - 1;
    if (cases) text += "; " + counted(cases, "case");
    if (totals.unwound) text += fmt::format("; {} unwound", with_separators(totals.unwound));
    if (lost) text += fmt::format("; {} lost", with_separators(lost));
    if (totals.unfinished_trees) text += "; " + counted(totals.unfinished_trees, "unfinished tree");
    if (totals.unknown_site) text += "; " + counted(totals.unknown_site, "scope") + " of unknown sites (a defect)";
    text = wrapped(text, "", width);
    if (lost) text += wrapped(lost_ranges, "", width);
    return text;
}

std::string warnings_text(const SessionSummary& session, std::size_t width, bool utf8) {
    std::string text;
    for (const std::string& warning : session.warnings) text += wrapped(printable(warning, utf8), "! ", width);
    return text;
}

}  // namespace

unsigned terminal_width() {
    if (!isatty(STDOUT_FILENO)) return 0;
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 80;
}

bool locale_is_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const char* value = std::getenv(name);
        if (!value || !*value) continue;
        std::string lower(value);
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char byte) { return std::tolower(byte); });
        return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
    }
    return false;
}

std::string table(const Collector& collector, const SessionSummary& session, unsigned width, bool utf8) {
    const std::vector<ReportRow> rows = report_rows(collector, RowDetail::kTable);
    const std::vector<Block> blocks = blocks_of(rows, collector.ranges(), session.uncertain_share, utf8);
    if (blocks.empty()) {
        const std::string text = fmt::format(
            "{} during the {:.1f} s{}", session.nothing_probed ? "Nothing was probed" : "No scope ended",
            session.duration_s, session.nothing_probed ? "." : ": no probed function returned in that time.");
        const std::string counts = collector.totals().trees == 0 && session.lost_by_range.empty()
                                       ? ""
                                       : totals_text(collector, session, width, utf8);
        return wrapped(text, "", width) + counts + warnings_text(session, width, utf8);
    }
    Wide host_ns = 0;
    Layout cells;
    for (const Block& block : blocks) {
        host_ns += block.host_ns;
        for (const auto& [phase, section] : block.sections) {
            widen(cells, section);
            cells.widths[kName] =
                std::max(cells.widths[kName], columns_of(std::string(collector.marks().phase_name(phase))));
        }
    }
    // Columns stand below each other through the whole report if there is room, else within each section.
    const Layout common = fitted(cells, width);
    const bool is_common = common.widths[kSelfMean] != 0;

    std::string text;
    for (const Block& block : blocks) {
        text += wrapped(fmt::format("{}   {}, {}", title_of(block, utf8),
                                    process_text(block.key.process, session, utf8), counted(block.threads, "thread")),
                        "", width);
        const std::string share = blocks.size() < 2 ? "" : ", " + percent(ratio(block.host_ns, host_ns)) + " of all";
        text += wrapped(fmt::format("{}, {} of host time{}", counted(block.calls, "call"),
                                    scaled(static_cast<double>(block.host_ns)), share),
                        "  ", width);
        for (const Phase phase : phases_of(block)) {
            const Section& section = block.sections.at(phase);
            Layout own;
            widen(own, section);
            own.widths[kName] = cells.widths[kName];
            text += "\n" + section_text(section, collector.marks().phase_name(phase),
                                        is_common ? common : fitted(own, width), utf8);
        }
        text += "\n";
    }
    if (blocks.size() > 1) text += overview(blocks, session, host_ns, width, utf8);
    if (collector.marks().has_cases()) text += dearest_ranges(blocks, collector.ranges(), host_ns, width, utf8);
    return text + totals_text(collector, session, width, utf8) + warnings_text(session, width, utf8);
}

}  // namespace hostrange
